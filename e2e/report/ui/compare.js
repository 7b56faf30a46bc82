// What changed between two runs.

const sections = [['Newly failing', 'bad'], ['Newly passing', 'good'], ['Slower', ''], ['Other changes', ''], ['Only before', ''], ['Only after', '']];

/** changes compares two runs: {section: [[spec, before, after]]}. */
function changes(before, after, factor) {
  const found = Object.fromEntries(sections.map(([name]) => [name, []]));
  for (const s of specs) {
    const a = s.in[before.key], b = s.in[after.key];
    if (!a && !b) continue;
    const where = a && b ? b.result !== a.result && (bad(b.result) && !bad(a.result) ? 'Newly failing' : good(b.result) && !good(a.result) ? 'Newly passing' : 'Other changes') :
      !a ? (bad(b.result) ? 'Newly failing' : 'Only after') : 'Only before';
    if (where) found[where].push([s, a, b]);
    // Less than a second is noise.
    if (a && b && good(a.result) && good(b.result) && b.seconds >= a.seconds * factor && b.seconds - a.seconds >= 1) found.Slower.push([s, a, b]);
  }
  const times = ([, a, b]) => b.seconds / Math.max(a.seconds, 0.001);
  found.Slower.sort((x, y) => times(y) - times(x));
  return found;
}

/** newest returns the run of the suite of the same CCM and kind of cluster. */
const newest = run => runs.find(r => r !== run && !r.label && r.ccm === run.ccm && r.cluster === run.cluster);

function compare(main) {
  const list = h('div'), byKey = key => runs.find(r => r.key === key);
  let before, after, factor;
  const options = runs.map(r => [r.key, `${r.title}, ${day(r.time)}`]);
  const set = name => value => { note({[name]: value}); read(); };
  function read() {
    const now = address();
    before = byKey(now.before) ?? before ?? runs.find(r => r.label) ?? runs[0];
    after = byKey(now.after) ?? after ?? newest(before) ?? runs.find(r => r !== before) ?? before;
    factor = Math.max(1, +now.factor || 2);
    draw();
  }
  async function load(event) {
    const file = event.target.files[0];
    if (!file) return;
    try {
      const more = check(JSON.parse(await file.text()));
      const first = String(runs.length);
      use([...runs, ...more.map(r => ({...r, label: [file.name, day(r.time)].join(', ')}))]);
      const same = newest(runs[first]) ?? runs[0];
      say(`${file.name} is loaded`);
      location.hash = link({view: 'compare', before: first, after: same.key});
    } catch (error) {
      say(`${file.name} was not loaded: ${error.message}`, true);
    }
  }
  read();
  show(main, h('h2', {}, 'Compare two runs'), h('p', {class: 'tools'}, choice('Before', 'before', options, before.key, set('before')),
    choice('After', 'after', options, after.key, set('after')),
    labelled('Slower by a factor of', h('input', {type: 'number', min: 1, step: 'any', value: factor, 'data-key': 'factor', onchange: e => set('factor')(e.target.value)})),
    labelled('Load another specs.json', h('input', {type: 'file', accept: '.json', 'data-key': 'file', onchange: load}))), list);

  function draw() {
    const found = changes(before, after, factor);
    const cell = c => c && [state(c.result), ` ${seconds(c.seconds)}`, c.reason && h('div', {class: 'reason'}, reason(c))];
    show(list, h('p', {role: 'status'}, before === after ? 'Choose two different runs.' :
      `${found['Newly failing'].length} newly failing, ${found['Newly passing'].length} newly passing, ${found.Slower.length} slower.`),
    sections.filter(([name]) => found[name].length).map(([name, mood]) => h('section', {}, h('h3', {class: mood}, `${name} (${found[name].length})`),
      table(name, ['Promise', 'Before', 'After'], found[name].map(([s, a, b]) => [specLink(s.name, b ? after.key : before.key), cell(a), cell(b)]), ''))));
  }
}
