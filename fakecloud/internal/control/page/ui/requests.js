// The journal: the latest requests, live, and one request in full.

import {h, show, ask, copy, table, button, labelled, regularly, duration, clockTime, when, pretty, bytes} from './dom.js';
import {cloud} from './store.js';

const kept = 500, interval = 700;

/** requests shows the journal until what it returns is called. */
export function requests(main) {
  let rows = [], since = 0, paused = false, skipped = 0, filters = 0;
  const list = h('div');
  const operation = h('input', {list: 'operations', placeholder: 'such as create_server', onchange: again});
  const text = h('input', {type: 'search', placeholder: 'path or client', oninput: draw});
  const writes = h('input', {type: 'checkbox', onchange: again}), errors = h('input', {type: 'checkbox', onchange: again});
  const names = h('datalist', {id: 'operations'});
  const pause = button('Pause', async () => { paused = !paused; pause.textContent = paused ? 'Continue' : 'Pause'; });
  show(main, h('h2', {}, 'Requests'), h('p', {class: 'tools'}, labelled('Operation', operation), labelled('Search', text),
    h('label', {}, writes, ' writes only'), h('label', {}, errors, ' errors only'), pause,
    button('Empty the journal', async () => { await ask('DELETE', 'journal'); rows = []; draw(); })), names, list);
  ask('GET', 'operations').then(a => show(names, a.operations.map(o => h('option', {value: o.operation}))), () => {});

  function again() { rows = []; since = 0; skipped = 0; filters++; read().catch(() => {}); }

  async function read() {
    const q = new URLSearchParams({limit: kept, since});
    if (operation.value) q.set('operation', operation.value);
    if (writes.checked) q.set('writes', 'true');
    if (errors.checked) q.set('errors', 'true');
    if (cloud.project) q.set('project', cloud.project);
    const asked = [since, filters].join();
    const {entries, count} = await ask('GET', `journal?${q}`);
    if (asked !== [since, filters].join()) return; // another read was faster, or the filter has changed
    since = entries.at(-1)?.seq ?? since;
    skipped += count - entries.length;
    if (!entries.length) return;
    rows = [...rows, ...entries].slice(-kept);
    draw();
  }

  function draw() {
    const want = text.value.toLowerCase();
    const shown = rows.filter(e => !want || `${e.path}?${e.query ?? ''} ${e.client} ${e.error_code ?? ''}`.toLowerCase().includes(want)).slice(-200).reverse();
    show(list, table('Requests', ['Time', 'Status', 'Request', 'Took', 'Notes', 'Client'], shown.map(e => [
      when(e.time), h('span', {class: `state ${e.status >= 400 || !e.status ? 'error' : 'ok'}`}, e.status || 'dropped', e.error_code ? ` ${e.error_code}` : ''),
      h('a', {href: `#/request/${e.seq}`, 'data-key': `request ${e.seq}`}, `${e.method} ${e.path}${e.query ? `?${e.query}` : ''}`),
      duration(e.duration_ns / 1e6), [e.fault, e.unknown_fields && `unknown: ${e.unknown_fields}`].filter(Boolean).join('; '), e.client.split(' ')[0]]), 'No request yet. They appear here as they come.'),
    skipped > 0 && h('p', {class: 'small'}, `${skipped.toLocaleString('en')} older or faster ones are not shown.`));
  }

  draw();
  return regularly(interval, async () => { if (!paused) await read(); });
}

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

/** curl returns a command that sends a request again: to the endpoint of the shell, whose port may be mapped. */
const curl = (e, body) => `curl -X ${e.method} -H "Authorization: Bearer $HCLOUD_TOKEN" ${body ? `-d ${quoted(body)} ` : ''}` +
  `"$HCLOUD_ENDPOINT"${quoted(e.path.replace(/^\/v1/, '') + (e.query ? `?${e.query}` : ''))}`;

/** request shows one request and its answer in full. */
export function request(panel, seq) {
  const body = h('div');
  show(panel, button('Close', async () => history.back(), {class: 'close'}), body);
  (async () => {
    try {
      const {entry: e, request: sent, response: got, kept: known} = await ask('GET', `journal/${seq}`);
      const part = (title, size, text) => [h('h3', {}, title), text ? h('pre', {tabindex: 0}, pretty(text)) :
        h('p', {class: 'empty'}, !size ? 'No body.' : known ? `${bytes(size)} that are not JSON are left out.` : `${bytes(size)}, which are not kept any more.`)];
      show(body, h('h2', {}, `${e.method} ${e.path}`), h('p', {class: 'kind'}, `request ${e.seq}`, e.operation && `, operation ${e.operation}`),
        h('dl', {}, [
          ['Status', e.status || 'the connection was dropped'], ['Handled as', e.handled_status], ['Error', e.error_code], ['Fault rule', e.fault], ['Unknown fields', e.unknown_fields],
          ['Query', e.query], ['Time', clockTime(e.time)], ['Took', duration(e.duration_ns / 1e6)], ['Client', e.client], ['From', e.remote],
          ['Project', e.project], ['Correlation ID', e.correlation_id],
          ['Resource', e.resource_id && h('a', {href: `#/resource/${e.resource_id}`}, e.resource_id)],
        ].filter(([, value]) => value).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]).flat()),
        (sent || !e.bytes_in) && button('Copy as curl', async () => copy(curl(e, sent), `the request is in the clipboard${sent?.includes('"REDACTED"') ? ': replace REDACTED in it' : ''}`)),
        part('Request', e.bytes_in, sent), part('Answer', e.bytes_out, got));
    } catch (error) {
      show(body, h('p', {}, error.message));
    }
  })();
  return () => {};
}
