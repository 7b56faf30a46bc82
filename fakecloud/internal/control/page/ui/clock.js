// Actions that run, the clock, what is due, and the state as a whole: settings, snapshots, copies.

import {h, show, ask, act, say, table, button, labelled, offer, regularly, words, duration, when} from './dom.js';
import {cloud, all, find, readClock} from './store.js';
import {actionTable, link, throttled} from './resources.js';

const shownDue = 200;

/** actions shows what runs with its progress, and what has ended. */
export function actions(main) {
  const running = h('div'), ended = h('div');
  let due = new Map();
  show(main, h('h2', {}, 'Actions'), h('section', {}, h('h3', {}, 'Running'), running), h('section', {}, h('h3', {}, 'Ended'), ended));
  function draw() {
    const latest = all('action').reverse();
    show(running, actionTable(latest.filter(a => a.resource.status === 'running').slice(0, shownDue), due));
    show(ended, actionTable(latest.filter(a => a.resource.status !== 'running').slice(0, 100)));
  }
  async function readDue() {
    if (!all('action').some(a => a.resource.status === 'running')) return;
    const {timeline} = await ask('GET', `timeline?limit=${shownDue}`);
    due = new Map(timeline.filter(d => d.action).map(d => [d.action, Date.parse(d.time)]));
    draw();
  }
  draw();
  const off = throttled(draw), stop = regularly(1000, readDue);
  return () => { stop(); off(); };
}

/** clock shows the clock, the timeline and the settings. */
export function clock(main) {
  const speed = h('input', {type: 'number', min: 0, step: 'any'}), by = h('input', {value: '1h', size: 6});
  const setSpeed = x => act(async () => { await ask('PUT', 'clock/speed', {speed: x}); await readClock(); offer(speed, cloud.speed); }, x ? `the clock runs at ${x}` : 'the clock stands still');
  const step = d => act(async () => { await ask('POST', 'clock/step', {by: d}); await readClock(); await read(); }, `${d} have passed`);
  const due = h('div'), forks = h('div');
  const profile = h('input', {size: 10}), limit = h('input', {type: 'number', min: 0});
  show(main, h('h2', {}, 'Clock and state'),
    h('section', {}, h('h3', {}, 'Clock'), h('p', {class: 'tools'}, button('Stop', () => setSpeed(0)), button('Real time', () => setSpeed(1)),
      button('A minute each second', () => setSpeed(60)), labelled('Speed', speed), button('Set the speed', () => setSpeed(+speed.value))),
    h('p', {class: 'tools'}, labelled('Let pass', by), button('Step', () => step(by.value)), button('Step 1 minute', () => step('1m')))),
    h('section', {}, h('h3', {}, 'What is due'), due),
    h('section', {}, h('h3', {}, 'Settings'), h('p', {class: 'tools'},
      labelled('Actions take', profile), button('Set the duration', () => act(() => ask('PUT', 'profile', {actions: profile.value}), 'new actions take that long')),
      labelled('Requests per hour', limit), button('Set the rate limit', () => act(() => ask('PUT', 'rate_limit', {limit: +limit.value}), 'the rate limit is changed, and full')))),
    h('section', {}, h('h3', {}, 'State'), h('p', {class: 'tools'}, h('a', {class: 'button', href: 'snapshot', download: 'cloud.snapshot'}, 'Save a snapshot'),
      labelled('Load a snapshot', h('input', {type: 'file', onchange: load})),
      button('Make a copy', () => act(async () => { await ask('POST', 'fork', {}); await read(); }, 'the copy is made')),
      button('Reset the cloud', () => confirm('Remove all resources, fault rules and scenarios, and empty the journal?') &&
        act(() => ask('POST', 'reset', {}), 'the cloud is empty')))), h('section', {}, h('h3', {}, 'Copies'), forks));

  async function load(event) {
    const file = event.target.files[0];
    event.target.value = ''; // so that the same file can be chosen again
    if (!file || !confirm(`Replace all that the cloud has by ${file.name}?`)) return;
    await act(async () => {
      const resp = await fetch('snapshot', {method: 'PUT', headers: {'Content-Type': 'application/json'}, body: file});
      if (!resp.ok) throw new Error((await resp.json()).error);
      await readClock();
    }, `${file.name} is loaded`);
  }

  async function read() {
    const {count, timeline, time} = await ask('GET', `timeline?limit=${shownDue}`);
    show(due, table('What is due', ['In', 'At', 'What', 'Of'], timeline.map(d => [duration(Date.parse(d.time) - Date.parse(time)), when(d.time),
      words(d.command || d.what), d.resources.map((r, i) => [i ? ', ' : '', find(r.id) ? link(find(r.id)) : `${words(r.type ?? '')} ${r.id}`]).flat()]),
    'Nothing.'), count > timeline.length && h('p', {class: 'small'}, `and ${count - timeline.length} more`));
    const {forks: copies} = await ask('GET', 'forks');
    show(forks, table('Copies', ['Copy', 'Endpoint', ''], copies.map(f => [h('a', {href: `${f.control}/`}, `copy ${f.id}`), f.endpoint,
      button(`Remove copy ${f.id}`, () => act(async () => { await ask('DELETE', `forks/${f.id}`); await read(); }, 'the copy is removed'))]), 'None.'));
  }

  offer(speed, cloud.speed);
  ask('GET', 'profile').then(a => offer(profile, a.actions), e => say(e.message, true));
  ask('GET', 'rate_limit').then(a => offer(limit, a.limit), e => say(e.message, true));
  return regularly(1500, read);
}
