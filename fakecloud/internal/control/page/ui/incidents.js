// Scenarios and fault rules: what runs, and what can be started.

import {h, show, ask, act, table, button, labelled, options, regularly, words, clockTime} from './dom.js';
import {cloud, all} from './store.js';
import {throttled} from './resources.js';

// What a rule may do, and the field that says how.
const effects = {
  api_error: 'Answer with an error of the API', drop: 'Close the connection', reset: 'Reset the connection',
  lose_answer: 'Carry it out, but lose the answer', latency: 'Answer late', http_status: 'Answer like a broken proxy',
  fail_action: 'Let the action fail', slow_action: 'Slow the action down', hang_action: 'Let the action hang',
  slow_guest: 'Let a guest be slow', ignore_shutdown: 'Let a guest ignore the shutdown', stay_off: 'Let a server stay off',
  cut_body: 'Cut the answer off', empty: 'Show an empty project', exhaust_rate_limit: 'Use up the rate limit',
};

/** readRunning shows the scenarios that run in the header of each page, with buttons that end them, and returns those that can be started. */
export async function readRunning() {
  const bar = document.getElementById('running'), {running, available} = await ask('GET', 'scenarios');
  const text = JSON.stringify(running);
  if (bar.dataset.shown === text) return available; // a button that is drawn again while it is pressed is not clicked
  bar.dataset.shown = text;
  show(bar, running.map(s => h('div', {}, h('strong', {}, s.name), h('span', {}, s.error ?? s.description), h('span', {class: 'small'}, `since ${clockTime(s.started)}`),
    button('End', () => act(async () => { await ask('DELETE', `scenarios/${s.id}`); await readRunning(); }, `${s.name} has ended`),
      {'aria-label': `End ${s.name} ${s.id}`, 'data-key': `end ${s.id}`}))));
  return available;
}

/** incidents shows scenarios and fault rules until what it returns is called. */
export function incidents(main) {
  const available = h('div', {class: 'scenarios'}), rules = h('div');
  let off = () => {}, ended = false;
  show(main, h('h2', {}, 'Incidents'),
    h('section', {}, h('h3', {}, 'Scenarios'),
      h('p', {class: 'small'}, 'Each rehearses what has broken clients of the real cloud, and ends without a trace.'), available),
    h('section', {}, h('h3', {}, 'Fault rules'), rules, form(read)));

  async function read() {
    const {faults} = await ask('GET', 'faults');
    show(rules, table('Fault rules', ['Name', 'Requests', 'Effect', 'Selected', 'Taken', ''], faults.map(f => [f.name, selects(f),
      words(f.effect.kind) + (f.effect.code ? ` ${f.effect.code}` : ''), f.matched, f.applied,
      button(`Remove ${f.name}`, () => act(async () => { await ask('DELETE', `faults/${encodeURIComponent(f.name)}`); await read(); }, `${f.name} is removed`))]),
    'None is in force.'));
  }

  (async () => {
    const [scenarios, {server_types: types}, {operations}, {error_codes: codes}, {load_balancer_types: balancers}] = await Promise.all([readRunning(),
      ...['catalogue', 'operations', 'error_codes', 'projects/1/v1/load_balancer_types'].map(path => ask('GET', path))]);
    if (ended) return;
    const each = (items, text) => [...new Set(items)].map(item => [item, text?.(item)]);
    const lists = {
      type: each(types.map(t => t.name)), balancer: each(balancers.map(t => t.name)), code: each(Object.keys(codes).sort()), location: each(types.flatMap(t => t.locations.map(l => l.name))),
      resource: each(operations.filter(o => o.method !== 'GET').map(o => o.resource), words),
    };
    const cards = scenarios.map(s => card(s, lists));
    const fill = () => {
      lists.server = all('server').slice(0, 1000).map(s => [s.resource.name]);
      lists.project = [...cloud.projects].map(([id, name]) => [id, name ? `${id} (${name})` : id]);
      for (const c of cards) c.fill();
    };
    fill();
    off = throttled(fill);
    show(available, cards.map(c => c.element));
  })().catch(() => {});
  const stop = regularly(2000, read);
  return () => { ended = true; off(); stop(); };
}

/** card shows a scenario as a sentence with the values of its fields. lists has what its parameters can be, by their names. */
function card(s, lists) {
  const listOf = p => p.default === 'lb11' ? 'balancer' : p.name; // a parameter "type", too
  const sentence = h('p'), fields = new Map((s.parameters ?? []).map(p => {
    const properties = {'aria-label': `${p.name} of ${s.name}`, title: p.description, oninput: draw};
    const listed = p.name === 'server' || p.name === 'project' || lists[listOf(p)]?.some(([value]) => value === p.default);
    return [p, listed ? h('select', properties) : h('input', {...properties, value: p.default, size: Math.max(5, p.default.length - 2)})];
  }));
  function draw() {
    const value = new Map([...fields].map(([p, f]) => [p.name, (f.selectedOptions?.[0]?.text ?? f.value) || p.default]));
    show(sentence, s.description.split(/\$(\w+)/).map((part, i) => i % 2 ? h('b', {}, value.get(part)) : part));
  }
  function fill() {
    for (const [p, f] of fields) if (f.tagName === 'SELECT') {
      options(f, [...p.description.includes('0 for all') ? [['0', 'all']] : [], ...lists[listOf(p)].length ? lists[listOf(p)] : [['', 'none exists']]], p.default);
    }
    draw();
    start.disabled = [...fields.values()].some(f => f.selectedOptions && !f.value);
  }
  const start = button('Start', () => act(async () => {
    const values = [...fields].filter(([, f]) => f.value).map(([p, f]) => `${p.name}=${f.value}`).join('@');
    await ask('POST', 'scenarios', {scenario: values ? `${s.name}=${values}` : s.name});
    await readRunning();
  }, `${s.name} runs`), {'aria-label': `Start ${s.name}`});
  return {fill, element: h('article', {class: 'box scenario'}, h('h4', {}, s.name), sentence,
    h('div', {class: 'fields'}, [...fields].map(([p, f]) => labelled(p.name + (f.tagName === 'SELECT' ? '' : `: ${p.description}`), f)), start))};
}

const selects = f => [f.method, f.route, f.path, f.operation, f.resource, f.writes && 'writes', f.client && `client ${f.client}`, f.project && `project ${f.project}`,
  f.first && `the first ${f.first}`, f.every && `each ${f.every}th`, f.probability && `${f.probability * 100} %`].filter(Boolean).join(', ') || 'all';

/** form adds a fault rule. */
function form(added) {
  const operation = h('input', {list: 'all-operations', placeholder: 'all'}), names = h('datalist', {id: 'all-operations'});
  const first = h('input', {type: 'number', min: 1, placeholder: 'all'}), probability = h('input', {type: 'number', min: 0, max: 1, step: 0.05, placeholder: '1'});
  const time = h('input', {value: '10s', size: 6}), status = h('input', {type: 'number', value: 502, min: 400, max: 599}), code = h('select');
  const effect = h('select', {onchange: choose}), extra = h('span');
  const more = {api_error: ['Code', code, 'code'], latency: ['By', time, 'latency'], slow_action: ['To', time, 'duration'], slow_guest: ['To', time, 'duration'], http_status: ['Status', status, 'status']};
  function choose() { show(extra, more[effect.value] && labelled(...more[effect.value])); }
  options(effect, Object.entries(effects));
  choose();
  ask('GET', 'operations').then(a => show(names, a.operations.map(o => h('option', {value: o.operation}))), () => {});
  ask('GET', 'error_codes').then(a => options(code, Object.keys(a.error_codes).sort().map(c => [c])), () => {});
  const typed = f => f.value === '' ? undefined : f.type === 'number' ? +f.value : f.value;
  const add = () => act(async () => {
    const rule = {effect: {kind: effect.value}, operation: typed(operation), first: typed(first), probability: typed(probability)};
    if (effect.value === 'lose_answer') rule.effect = {kind: 'drop', after: true};
    if (more[effect.value]) rule.effect[more[effect.value][2]] = typed(more[effect.value][1]);
    await ask('POST', 'faults', rule);
    await added();
  }, 'the rule is in force');
  return h('div', {class: 'fields'}, labelled('Operation', operation), names, labelled('Effect', effect), extra, labelled('First', first),
    labelled('Probability', probability), button('Add a fault rule', add));
}
