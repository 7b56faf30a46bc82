// The runs, the specs of all runs, and what the address says.

const data = JSON.parse(document.getElementById('data').textContent);
const good = result => result === 'passed' || result === 'gap closed';
const bad = result => result === 'failed' || result === 'known gap';

let runs = [], specs = []; // specs: {name, group, labels, source, in: {the key of a run: its spec}}

/** use makes the page show runs, which may come from any file. */
function use(all) {
  runs = all.map((r, i) => ({...r, key: String(i), title: `${r.ccm} on ${r.cluster}${r.label ? ` (${r.label})` : ''}`}));
  const byName = new Map();
  for (const r of runs) {
    for (const s of r.specs ?? []) {
      if (!byName.has(s.name)) byName.set(s.name, {name: s.name, group: s.group ?? '', labels: s.labels ?? [], source: s.source ?? '', container: s.container ?? '', in: {}});
      byName.get(s.name).in[r.key] = s;
    }
  }
  const order = new Map(); // of the groups, as in the source
  for (const s of byName.values()) if (!order.has(s.group)) order.set(s.group, order.size);
  specs = [...byName.values()].sort((a, b) => order.get(a.group) - order.get(b.group)); // which keeps the order in a group
}

/** check returns the runs in what a file contains, and throws if it has none. */
function check(content) {
  const all = [content].flat();
  const fine = r => r && typeof r.ccm === 'string' && typeof r.cluster === 'string' && Array.isArray(r.specs) &&
    r.specs.every(s => s && typeof s.name === 'string' && typeof s.result === 'string' && typeof s.seconds === 'number' && Array.isArray(s.labels ?? []));
  if (!all.length || !all.every(fine)) throw new Error('it must be a specs.json of the suite');
  return all;
}

/** address returns what the address says. Every view has an address of its own. */
const address = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

/** link returns the address that differs from the present one in some values. */
function link(changes) {
  const now = new URLSearchParams(Object.entries({...address(), ...changes}).filter(([, v]) => v));
  return `#${now.toString().replaceAll('+', '%20')}`;
}

/** specLink is a link to the details of a spec. */
const specLink = (name, run = '', text = name) => h('a', {href: link({spec: name, run}), 'data-key': `${name} ${run}`}, text);

/** figures returns the values of a figure in a run: [{value, unit, spec}], the largest first. */
const figures = (run, name) => (run.specs ?? []).flatMap(s => (s.figures ?? []).filter(f => f.name === name).map(f => ({...f, spec: s.name})))
  .sort((a, b) => b.value - a.value);

const amount = f => f.unit === 's' ? seconds(f.value) : `${f.value.toLocaleString('en')} ${f.unit}`;
