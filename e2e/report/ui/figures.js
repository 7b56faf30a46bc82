// What has been measured: incidents, budgets of requests, times.

function incidents(main) {
  const rehearsed = c => c && !['not here', 'unsupported'].includes(c.result);
  const rows = specs.filter(s => s.labels.includes('incident') && Object.values(s.in).some(rehearsed));
  const columns = runs.filter(r => rows.some(s => rehearsed(s.in[r.key])));
  const survived = r => rows.filter(s => s.in[r.key] && good(s.in[r.key].result)).length;
  const cell = c => {
    if (!rehearsed(c)) return '';
    const note = name => c.notes?.find(n => n.name.startsWith(name))?.text;
    const [calls, traffic] = [note('incident'), note('requests during and after the incident')];
    return [good(c.result) ? h('span', {class: 'state passed'}, 'survived') : state(c.result), c.reason && h('div', {class: 'reason all'}, reason(c)),
      calls && h('div', {class: 'small'}, `calls to the API: ${calls}`), traffic && h('div', {class: 'small'}, `requests of users: ${traffic}`)];
  };
  show(main, h('h2', {}, 'Incidents'), h('p', {}, 'What users of a cluster feel when the cloud has trouble: a node or a target that is lost, a request without an answer, ' +
    'a load balancer that is left over.'), columns.map(r => h('p', {}, `${r.title} survives `, h('strong', {}, `${survived(r)} of ${rows.filter(s => s.in[r.key] && (good(s.in[r.key].result) || bad(s.in[r.key].result))).length}`), ' incidents.')),
  table('Incidents', ['Incident', ...columns.map(r => r.title)], rows.map(s => [specLink(s.name), ...columns.map(r => cell(s.in[r.key]))]),
    'No run on this page has rehearsed an incident: make e2e LABELS=incident.'));
}

function budgets(main) {
  const cell = (r, name) => {
    const [worst, ...more] = figures(r, name);
    if (!worst) return h('span', {class: 'empty'}, 'not measured in this run');
    return [specLink(worst.spec, r.key, amount(worst)), more.length > 0 && h('div', {class: 'small'}, `the most of ${more.length + 1} specs`)];
  };
  const rows = names => names.map(name => [name, ...runs.map(r => cell(r, name))]);
  const others = [...new Set(runs.flatMap(r => r.specs.flatMap(s => (s.figures ?? []).map(f => f.name))))]
    .filter(name => !data.budgets.includes(name) && name !== data.requestsOfTheSpec).sort();
  const busiest = runs.flatMap(r => figures(r, data.requestsOfTheSpec).slice(0, 10).map(f => [specLink(f.spec, r.key), r.title, amount(f)]));
  show(main, h('h2', {}, 'Budgets'), h('p', {}, 'All clients of a project share its calls to the API. A CCM that needs few leaves them to others.'),
    table('Budgets', ['Figure', ...runs.map(r => r.title)], rows(data.budgets), ''),
    others.length > 0 && [h('h3', {}, 'Other figures'), table('Other figures', ['Figure', ...runs.map(r => r.title)], rows(others), '')],
    h('h3', {}, 'The specs with the most requests'), table('The specs with the most requests', ['Spec', 'Run', 'Requests'], busiest, 'Not measured in these runs.'));
}
