// Scenarios and fault rules: what runs, and what can be started.

import {h, show, ask, act, table, button, labelled, words, clockTime} from './dom.js';

// What a rule may do, and the field that says how.
const effects = {
  api_error: 'Answer with an error of the API', drop: 'Close the connection', reset: 'Reset the connection',
  lose_answer: 'Carry it out, but lose the answer', latency: 'Answer late', http_status: 'Answer like a broken proxy',
  fail_action: 'Let the action fail', slow_action: 'Slow the action down', hang_action: 'Let the action hang',
  cut_body: 'Cut the answer off', empty: 'Show an empty project', exhaust_rate_limit: 'Use up the rate limit',
};

/** incidents shows scenarios and fault rules until what it returns is called. */
export function incidents(main) {
  const running = h('div'), available = h('div'), rules = h('div');
  show(main, h('h2', {}, 'Incidents'),
    h('section', {}, h('h3', {}, 'Scenarios that run'), running),
    h('section', {}, h('h3', {}, 'Fault rules'), rules, form(read)),
    h('section', {}, h('h3', {}, 'Scenarios that can be started'),
      h('p', {}, 'Each rehearses what has broken clients of the real cloud, and ends without a trace.'), available));

  async function read() {
    const {running: runs} = await ask('GET', 'scenarios');
    show(running, table('Scenarios that run', ['Scenario', 'Parameters', 'Started', 'In force', ''], runs.map(s => [
      h('span', {title: s.description}, s.name), Object.entries(s.parameters ?? {}).map(([k, v]) => `${k}=${v}`).join(', '), clockTime(s.started),
      s.error ?? s.in_force, button(`End ${s.name} ${s.id}`, () => act(async () => { await ask('DELETE', `scenarios/${s.id}`); await read(); }, `${s.name} has ended`))]),
    'None runs.'));
    const {faults} = await ask('GET', 'faults');
    show(rules, table('Fault rules', ['Name', 'Requests', 'Effect', 'Selected', 'Taken', ''], faults.map(f => [f.name, selects(f),
      words(f.effect.kind) + (f.effect.code ? ` ${f.effect.code}` : ''), f.matched, f.applied,
      button(`Remove ${f.name}`, () => act(async () => { await ask('DELETE', `faults/${encodeURIComponent(f.name)}`); await read(); }, `${f.name} is removed`))]),
    'None is in force.'));
  }

  ask('GET', 'scenarios').then(({available: all}) => show(available, table('Scenarios', ['Scenario', 'What happens', 'Parameters', ''], all.map(s => {
    const fields = (s.parameters ?? []).map(p => [p.name, h('input', {'aria-label': `${p.name} of ${s.name}`, title: p.description, placeholder: p.default, size: 12})]);
    return [s.name, s.description, fields.map(([, field]) => field), button(`Start ${s.name}`, () => act(async () => {
      const values = fields.filter(([, f]) => f.value).map(([name, f]) => `${name}=${f.value}`).join('@');
      await ask('POST', 'scenarios', {scenario: values ? `${s.name}=${values}` : s.name});
      await read();
    }, `${s.name} runs`))];
  }))), () => {});

  const again = () => { if (!document.hidden) read().catch(() => {}); };
  again();
  const timer = setInterval(again, 2000);
  return () => clearInterval(timer);
}

const selects = f => [f.method, f.route, f.path, f.operation, f.resource, f.writes && 'writes', f.client && `client ${f.client}`, f.project && `project ${f.project}`,
  f.first && `the first ${f.first}`, f.every && `each ${f.every}th`, f.probability && `${f.probability * 100} %`].filter(Boolean).join(', ') || 'all';

/** form adds a fault rule. */
function form(added) {
  const operation = h('input', {list: 'all-operations', placeholder: 'all'}), names = h('datalist', {id: 'all-operations'});
  const effect = h('select', {onchange: choose}, Object.entries(effects).map(([value, text]) => h('option', {value}, text)));
  const code = h('select'), first = h('input', {type: 'number', min: 1, placeholder: 'all'}), probability = h('input', {type: 'number', min: 0, max: 1, step: 0.05, placeholder: '1'});
  const time = h('input', {value: '10s', size: 6}), status = h('input', {type: 'number', value: 502, min: 400, max: 599});
  const more = {api_error: labelled('Code', code), latency: labelled('By', time), slow_action: labelled('To', time), http_status: labelled('Status', status)};
  const extra = h('span');
  ask('GET', 'operations').then(a => show(names, a.operations.map(o => h('option', {value: o.operation}))), () => {});
  ask('GET', 'error_codes').then(a => show(code, Object.keys(a.error_codes).sort().map(c => h('option', {}, c))), () => {});
  function choose() { show(extra, more[effect.value]); }
  choose();
  const add = () => act(async () => {
    const rule = {effect: {kind: effect.value}};
    if (effect.value === 'lose_answer') rule.effect = {kind: 'drop', after: true};
    if (effect.value === 'api_error') rule.effect.code = code.value;
    if (effect.value === 'latency') rule.effect.latency = time.value;
    if (effect.value === 'slow_action') rule.effect.duration = time.value;
    if (effect.value === 'http_status') rule.effect.status = +status.value;
    if (operation.value) rule.operation = operation.value;
    if (first.value) rule.first = +first.value;
    if (probability.value) rule.probability = +probability.value;
    await ask('POST', 'faults', rule);
    await added();
  }, 'the rule is in force');
  return h('p', {class: 'tools'}, labelled('Operation', operation), names, labelled('Effect', effect), extra, labelled('First', first),
    labelled('Probability', probability), button('Add a fault rule', add));
}
