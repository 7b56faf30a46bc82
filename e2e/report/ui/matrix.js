// The matrix: a row for each promise, a column for each CCM and kind of cluster.

/** chosen returns the columns and rows that the filters of the address let through. */
function chosen() {
  const {text = '', result = '', ccm = '', cluster = '', label = ''} = address();
  const all = runs.filter(r => (!ccm || r.ccm === ccm) && (!cluster || r.cluster === cluster));
  const columns = [...Map.groupBy(all, r => r.ccm).values()].flat(); // next to each other, for the headings
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = specs.filter(s => {
    const cells = columns.map(r => s.in[r.key]).filter(Boolean);
    if (!cells.length || label && !s.labels.includes(label)) return false;
    if (result === 'different') {
      if (new Set(cells.map(c => c.result)).size < 2) return false;
    } else if (result && !cells.some(c => c.result === result)) return false;
    const said = [s.name, s.source, ...s.labels, ...cells.flatMap(c => [c.reason ?? '', c.failure?.message ?? ''])].join(' ').toLowerCase();
    return words.every(w => said.includes(w));
  });
  return {columns, rows};
}

function matrix(main) {
  const list = h('div');
  const set = name => value => { note({[name]: value}); draw(); };
  const now = address();
  const values = of => [['', 'all'], ...[...new Set(of)].sort()];
  const field = h('input', {type: 'search', 'data-key': 'text', value: now.text ?? '', placeholder: 'name, reason, message', oninput: e => set('text')(e.target.value)});
  const label = h('input', {list: 'labels', 'data-key': 'label', size: 14, value: now.label ?? '', placeholder: 'such as service', oninput: e => set('label')(e.target.value)});
  show(main, h('h2', {}, 'Promises'), h('div', {class: 'cards'}, runs.map(card)),
    h('p', {class: 'tools'}, labelled('Search', field),
      choice('Result', 'result', [...values(runs.flatMap(r => r.specs.map(s => s.result))), ['different', 'differs between columns']], now.result ?? '', set('result')),
      choice('CCM', 'ccm', values(runs.map(r => r.ccm)), now.ccm ?? '', set('ccm')),
      choice('Cluster', 'cluster', values(runs.map(r => r.cluster)), now.cluster ?? '', set('cluster')), labelled('Label', label),
      h('datalist', {id: 'labels'}, [...new Set(specs.flatMap(s => s.labels))].sort().map(value => h('option', {value}))),
      h('a', {class: 'button', href: '#view=matrix', 'data-key': 'no filter'}, 'No filter')), list);

  function draw() {
    const {columns, rows} = chosen();
    const [ran, elsewhere] = [true, false].map(r => rows.filter(s => ranIn(s, columns) === r));
    const groups = Map.groupBy(ran, s => s.group);
    show(list, h('p', {class: 'small', role: 'status'}, `${plural(rows.length, 'promise')} of ${specs.length}`), notHere(elsewhere, columns, !ran.length),
      ran.length > 0 && scrolled('Promises', h('table', {class: 'matrix'}, h('caption', {class: 'hidden'}, 'Promises'), head(columns),
        [...groups].map(([group, of]) => h('tbody', {}, h('tr', {class: 'group'}, h('th', {scope: 'rowgroup', colspan: columns.length + 1}, `${group} `,
          h('span', {class: 'small'}, String(of.length)))), of.map(s => row(s, columns)))))));
  }
  draw();
}

const ranIn = (s, columns) => columns.some(r => s.in[r.key] && s.in[r.key].result !== 'not here');

/** notHere folds the promises that no column can show, and says how to run them. */
function notHere(of, columns, open) {
  if (!of.length) return [];
  const why = s => columns.map(r => s.in[r.key]?.reason).find(Boolean) ?? '';
  return h('details', {class: 'not-here', open}, h('summary', {'data-key': 'not here'}, `${plural(of.length, 'promise')} did not run here`),
    [...Map.groupBy(of, why)].map(([reason, group]) => {
      const [cause, setting] = reason.split(/(?=E2E_CLUSTER=)/);
      return [h('p', {}, cause, setting && h('code', {}, `${setting} make e2e`)), h('ul', {}, group.map(s => h('li', {}, specLink(s.name))))];
    }));
}

/** head makes two rows of headings: the CCMs, and their kinds of clusters. */
function head(columns) {
  const ccms = Map.groupBy(columns, r => r.ccm);
  return h('thead', {}, h('tr', {}, h('th', {scope: 'col', rowspan: 2}, 'Promise'), [...ccms].map(([ccm, of]) => h('th', {scope: 'colgroup', colspan: of.length}, ccm))),
    h('tr', {}, columns.map(r => h('th', {scope: 'col'}, r.cluster, r.label && h('span', {class: 'small'}, ` ${r.label}`)))));
}

function row(s, columns) {
  const name = s.name.startsWith(`${s.group} `) ? s.name.slice(s.group.length + 1) : s.name;
  return h('tr', {}, h('th', {scope: 'row'}, specLink(s.name, '', name)), columns.map(r => {
    const c = s.in[r.key];
    if (!c) return h('td', {title: 'was not part of the run'});
    // The row's link leads to all columns. These are for the mouse, and no stops of the keyboard.
    return h('td', {}, h('a', {class: 'cell', tabindex: -1, href: link({spec: s.name, run: r.key}), title: c.reason}, state(c.result)),
      c.reason && c.result !== 'not here' && h('div', {class: 'reason'}, reason(c)));
  }));
}

/** reason returns the reason of a result. That of an unsupported spec may be a list of features; that of a failed one begins with how long it waited. */
function reason(c) {
  if (c.result === 'unsupported' && c.reason.startsWith('[')) return `lacks ${c.reason.replace(/^\[|\]$/g, '')}`;
  return c.result === 'failed' && c.failure ? c.failure.message.replace(/^Timed out after [\d.]+s\.\s/, '').slice(0, 300) : c.reason;
}

/** card sums up a run. */
function card(r) {
  const count = Object.entries(Object.groupBy(r.specs, s => s.result)).map(([result, of]) => [result, of.length]);
  const n = Object.fromEntries(count), passed = (n.passed ?? 0) + (n['gap closed'] ?? 0);
  const all = passed + (n.failed ?? 0) + (n['known gap'] ?? 0);
  return h('section', {class: 'card', 'aria-label': r.title}, h('h3', {}, r.title), h('p', {}, h('strong', {}, `${passed} of ${all}`), ` passed, ${day(r.time)}`),
    h('p', {class: 'counts'}, count.map(([result, of]) => [h('span', {class: 'count'}, state(result), ` ${of}`), ' '])),
    r.left_out > 0 && h('p', {class: 'small'}, `A part of the specs: ${r.left_out} were left out.`),
    r.incomplete && h('p', {class: 'bad'}, `Incomplete: ${r.incomplete}`));
}
