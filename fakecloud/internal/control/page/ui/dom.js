// What all pages share: making elements, asking the control API, and showing values.

/** h makes an element. Texts are never parsed as HTML: names come from clients of the cloud. */
export function h(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') e[name] = value;
    else e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...children.flat(9).filter(c => c !== undefined && c !== null && c !== false));
  return e;
}

/** show replaces what is in a parent. The element with the focus keeps it, if one with the same data-key comes back. */
export function show(parent, ...children) {
  const key = parent.contains(document.activeElement) && document.activeElement.dataset.key;
  const scrolled = [...parent.querySelectorAll('[data-scroll]')].map(e => [e.dataset.scroll, e.scrollLeft, e.scrollTop]);
  parent.replaceChildren(...children.flat(9).filter(Boolean));
  for (const [name, left, top] of scrolled) parent.querySelector(`[data-scroll="${name}"]`)?.scrollTo(left, top);
  if (key) [...parent.querySelectorAll('[data-key]')].find(e => e.dataset.key === key)?.focus({preventScroll: true});
}

/** ask sends a request to the control API, or below projects/…/v1 to the API, and returns its JSON. An error has that API's own message. */
export async function ask(method, path, body) {
  const headers = {Accept: 'application/json'};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const resp = await fetch(path, {method, headers, body: body === undefined ? undefined : JSON.stringify(body)});
  const text = await resp.text();
  let answer = {};
  try { answer = JSON.parse(text); } catch { /* the status says enough */ }
  if (!resp.ok) throw new Error(answer.error?.message ?? answer.error ?? `${method} /${path}: ${resp.status}`);
  return answer;
}

/** say tells the user something, also if he does not see the page. */
export function say(text, bad = false) {
  const box = document.getElementById('message');
  box.textContent = text;
  box.className = bad ? 'bad' : 'good';
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { box.textContent = ''; }, bad ? 12000 : 4000);
}

/** act does what a button is for, and says how it ended. */
export async function act(what, done) {
  try {
    const answer = await what();
    if (done) say(done);
    return answer;
  } catch (error) {
    say(error.message, true);
  }
}

/** regularly works now and every so many milliseconds, while the page is in front. It returns the end of that. */
export function regularly(pause, work) {
  const again = () => { if (!document.hidden) work().catch(() => {}); }; // the header says that the cloud does not answer
  again();
  const timer = setInterval(again, pause);
  return () => clearInterval(timer);
}

/** button makes a button whose work is done once at a time. */
export function button(label, work, properties = {}) {
  const b = h('button', {type: 'button', 'data-key': label, ...properties, onclick: async () => {
    b.disabled = true;
    try { await work(); } finally { b.disabled = false; }
  }}, label);
  return b;
}

/** copy puts a text into the clipboard. A browser that allows no page of this address to do so shows the text instead. */
export const copy = (text, done) => navigator.clipboard?.writeText(text).then(() => say(done), () => say(text)) ?? say(text);

/** options fills a select with values and their texts. It keeps the chosen one; the first time, that is the default, if it is there. */
export function options(select, pairs, preset) {
  const list = JSON.stringify(pairs), chosen = select.value || preset;
  if (select.dataset.list === list) return;
  select.dataset.list = list;
  show(select, pairs.map(([value, text = value]) => h('option', {value}, text)));
  if (pairs.some(([value]) => String(value) === chosen)) select.value = chosen;
}

/** labelled makes a field with its label. */
export const labelled = (text, field) => h('label', {}, `${text} `, field);

/** offer puts a value of the cloud into a field, unless somebody has typed another one since the last offer. */
export function offer(field, value) {
  const typed = field.value !== (field.dataset.offered ?? field.defaultValue);
  if (typed && field.value !== String(value)) return;
  field.value = value;
  field.dataset.offered = field.value;
}

/** table makes a table that can be scrolled by keyboard. rows are lists of cells: texts or elements. */
export function table(caption, heads, rows, empty) {
  if (rows.length === 0 && empty) return h('p', {class: 'empty'}, empty);
  return h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption, 'data-scroll': caption, 'data-key': caption},
    h('table', {}, h('caption', {class: 'hidden'}, caption),
      h('thead', {}, h('tr', {}, heads.map(x => typeof x === 'string' ? h('th', {scope: 'col'}, x) : x))),
      h('tbody', {}, rows.map(row => h('tr', {}, row.map(c => h('td', {}, c ?? '')))))));
}

export const plural = (n, one) => `${n.toLocaleString('en')} ${one}${n === 1 ? '' : 's'}`;

export const words = kind => kind.replaceAll('_', ' ').replace(/\bip\b/, 'IP').replace(/\bssh\b/, 'SSH');

export function bytes(n) {
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    if (n < 1000) return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
}

export function duration(ms) {
  if (ms < 0) return 'now';
  if (ms < 1) return `${(ms).toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 120) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

/** endpoint is the API's, for clients. */
export const endpoint = document.querySelector('meta[name=endpoint]').content || new URL('v1', document.baseURI).href;

/** when shows a time, of which a narrow screen leaves out the day. */
export const when = text => h('time', {}, h('span', {class: 'day'}, clockTime(text).slice(0, 11)), clockTime(text).slice(11));

export const clockTime = text => text ? text.replace('T', ' ').replace(/\.\d+/, '').replace(/Z$|\+00:00$/, '') : '';

export const pretty = text => {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
};
