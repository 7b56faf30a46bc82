// Making elements, and showing values.

/** h makes an element. Texts are never parsed as HTML: they come from CCMs and clouds. */
function h(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (name === 'value') e[name] = value;
    else e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...children.flat(2).filter(c => c !== undefined && c !== null && c !== false));
  return e;
}

/** show replaces what is in a parent. The element with the focus keeps it, if one with the same data-key comes back. */
function show(parent, ...children) {
  const key = parent.contains(document.activeElement) && document.activeElement.dataset.key;
  parent.replaceChildren(...children.flat(2).filter(Boolean));
  if (key) [...parent.querySelectorAll('[data-key]')].find(e => e.dataset.key === key)?.focus({preventScroll: true});
}

/** say tells the user something, also if he does not see the page. */
function say(text, bad = false) {
  const box = document.getElementById('message');
  box.textContent = text;
  box.className = bad ? 'bad' : 'good';
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { box.textContent = ''; }, bad ? 12000 : 4000);
}

const labelled = (text, field) => h('label', {}, `${text} `, field);

/** choice makes a field with options, each a text or [value, text]. */
const choice = (label, key, options, value, change) => labelled(label, h('select', {'data-key': key, onchange: e => change(e.target.value)},
  options.map(o => [o].flat()).map(([v, text = v]) => h('option', {value: v, selected: v === value}, text))));

/** scrolled makes a part that can be scrolled by keyboard. */
const scrolled = (name, ...children) => h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': name, 'data-key': `scroll ${name}`}, ...children);

/** table makes a table with a heading for each row. rows are lists of cells: texts or elements. */
function table(caption, heads, rows, empty) {
  if (!rows.length) return h('p', {class: 'empty'}, empty);
  return scrolled(caption, h('table', {}, h('caption', {class: 'hidden'}, caption),
    h('thead', {}, h('tr', {}, heads.map(x => h('th', {scope: 'col'}, x)))),
    h('tbody', {}, rows.map(([head, ...cells]) => h('tr', {}, h('th', {scope: 'row'}, head), cells.map(c => h('td', {}, c ?? '')))))));
}

const plural = (n, one) => `${n.toLocaleString('en')} ${one}${n === 1 ? '' : 's'}`;

const seconds = s => `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;

const day = text => text ? text.replace('T', ' ').slice(0, 16) : '';

/** state shows a result. */
const state = result => h('span', {class: `state ${result.replaceAll(' ', '-')}`}, result);
