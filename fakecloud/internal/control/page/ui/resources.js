// Tables of all kinds of resources, and one resource with all that is known of it.

import {h, show, ask, act, copy, endpoint, table, words, clockTime, when, labelled, button} from './dom.js';
import {cloud, all, find, now, onChange, connections} from './store.js';

const perPage = 100;

const ips = r => [r.public_net?.ipv4?.ip, ...(r.private_net ?? []).map(n => n.ip)].filter(Boolean).join(' ');
const nameOf = id => id ? find(id)?.resource.name ?? String(id) : '';
const location = r => r.location?.name ?? r.datacenter?.location?.name ?? r.home_location?.name ?? '';

// The columns of each kind after its id and name: heading and value.
const columns = {
  server: [['Status', r => r.status], ['Type', r => r.server_type?.name], ['Location', location], ['Addresses', ips],
    ['Volumes', r => r.volumes?.length || '']],
  load_balancer: [['Health', r => health(r).text], ['Type', r => r.load_balancer_type?.name], ['Location', location], ['Address', r => r.public_net?.ipv4?.ip],
    ['Services', r => r.services.map(s => `${s.protocol} ${s.listen_port}→${s.destination_port}`).join(', ')]],
  network: [['Range', r => r.ip_range], ['Subnets', r => r.subnets.map(s => s.ip_range).join(', ')], ['Servers', r => r.servers.length],
    ['Routes', r => r.routes.length]],
  volume: [['Size', r => `${r.size} GB`], ['Status', r => r.status], ['Location', location], ['Server', r => nameOf(r.server)]],
  firewall: [['Rules', r => r.rules.length], ['Applied to', r => r.applied_to.length]],
  floating_ip: [['Address', r => r.ip], ['Location', location], ['Server', r => nameOf(r.server)]],
  primary_ip: [['Address', r => r.ip], ['Location', location], ['Assigned to', r => nameOf(r.assignee_id)]],
  certificate: [['Type', r => r.type], ['Names', r => r.domain_names?.join(', ')], ['Valid until', r => clockTime(r.not_valid_after)]],
  image: [['Type', r => r.type], ['Status', r => r.status], ['Description', r => r.description]],
  placement_group: [['Type', r => r.type], ['Servers', r => r.servers.length]],
  ssh_key: [['Fingerprint', r => r.fingerprint]],
  zone: [['Mode', r => r.mode], ['Status', r => r.status], ['Records', r => r.record_count]],
};

/** health counts the targets of a load balancer that are healthy on all ports, and says of each how it is and, if it is not healthy, why. */
export function health(lb) {
  let healthy = 0, unhealthy = 0;
  const byServer = new Map(), unchecked = lb.services.length ? 'not checked yet' : 'no service';
  const targets = (lb.targets ?? []).flatMap(t => t.type === 'label_selector' ? t.targets ?? [] : t), total = targets.length;
  for (const t of targets) {
    const ports = t.health_status ?? [], bad = ports.find(s => s.status === 'unhealthy');
    let status = bad ? 'unhealthy' : ports.length && ports.every(s => s.status === 'healthy') ? 'healthy' : 'unknown';
    let why = bad ? [words(bad.detail ?? 'unhealthy'), bad.http_status_code, `on ${bad.listen_port}`].filter(Boolean).join(' ') : '';
    if (bad) unhealthy++;
    if (status === 'healthy') {
      healthy++;
      const is = t.server && find(t.server.id)?.resource.status;
      if (is && is !== 'running') [status, why] = ['degraded', `${words(is)}, not noticed yet`];
    } else if (!bad) why = unchecked;
    byServer.set(t.server?.id ?? t.ip?.ip, {status, why});
  }
  const unknown = total - healthy - unhealthy;
  return {byServer, status: !unhealthy ? healthy ? 'healthy' : 'unknown' : healthy ? 'degraded' : 'unhealthy',
    text: !total ? 'no targets' : unknown === total ? unchecked : `${healthy} of ${total} healthy${unknown ? `, ${unknown} ${unchecked}` : ''}`};
}

const labelsOf = r => Object.entries(r.labels ?? {}).map(([k, v]) => v ? `${k}=${v}` : k).join(', ');

export const link = item => h('a', {class: 'name', href: `#/resource/${item.id}`, 'data-key': `link ${item.id}`},
  item.resource.name || `${words(item.kind)} ${item.id}`);

/** resources shows the table of one kind. */
export function resources(main, [kind]) {
  let search = '', sortBy = 'ID', down = false, page = 0;
  const list = h('div');
  const field = h('input', {type: 'search', id: 'search', placeholder: 'name, label, address', oninput: () => {
    search = field.value.toLowerCase(); page = 0; draw();
  }});
  const kinds = h('nav', {class: 'kinds', 'aria-label': 'Kinds of resources'});
  show(main, h('h2', {}, 'Resources'), kinds, h('p', {class: 'tools'}, labelled('Search', field)), list);

  function heading(title) {
    const on = title === sortBy;
    return h('th', {scope: 'col', 'aria-sort': on ? (down ? 'descending' : 'ascending') : 'none'},
      h('button', {type: 'button', 'data-key': `sort ${title}`, onclick: () => { down = on && !down; sortBy = title; draw(); }},
        title, on ? (down ? ' ▾' : ' ▴') : ''));
  }

  function draw() {
    const known = Object.keys(columns).filter(k => all(k).length);
    kind ??= known[0];
    show(kinds, known.map(k => h('a', {href: `#/resources/${k}`, 'data-key': k, 'aria-current': k === kind ? 'page' : undefined},
      `${words(k)}s`, h('span', {class: 'count'}, all(k).length.toLocaleString('en')))));
    if (!kind) { show(list, begin()); return; }
    const of = [['ID', (r, i) => i.id], ['Name', r => r.name], ...columns[kind], ['Labels', labelsOf]];
    const at = of.findIndex(([title]) => title === sortBy);
    let rows = all(kind).map(item => ({item, cells: of.map(([, value]) => value(item.resource, item) ?? '')}));
    if (search) rows = rows.filter(row => row.cells.join(' ').toLowerCase().includes(search));
    rows.sort((a, b) => {
      const [x, y] = [a.cells[at], b.cells[at]];
      const order = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true});
      return down ? -order : order;
    });
    page = Math.max(0, Math.min(page, Math.ceil(rows.length / perPage) - 1));
    const shown = rows.slice(page * perPage, (page + 1) * perPage);
    show(list, table(`${words(kind)}s`, of.map(([title]) => heading(title)),
      shown.map(({item, cells}) => [cells[0], link(item), ...cells.slice(2).map((c, i) => cell(of[i + 2][0], c))]),
      search ? 'Nothing matches.' : `No ${words(kind)}.`),
    rows.length > perPage && h('p', {class: 'tools'},
      button('Back', async () => { page--; draw(); }), ` ${page * perPage + 1} to ${page * perPage + shown.length} of ${rows.length.toLocaleString('en')} `,
      button('Next', async () => { page++; draw(); })));
  }
  draw();
  return throttled(draw);
}

const cell = (title, value) => title === 'Status' ? h('span', {class: `state ${value}`}, value) : String(value);

/** throttled draws again while the cloud changes, at most half of the time. It returns what ends that. */
export function throttled(draw) {
  let timer = 0, pause = 100;
  const off = onChange(() => {
    timer ||= setTimeout(() => {
      timer = 0;
      const began = performance.now();
      draw();
      pause = Math.max(250, 2 * (performance.now() - began));
    }, pause);
  });
  return () => { clearTimeout(timer); off(); };
}

/** begin says how an empty cloud gets its first resource. */
export function begin() {
  const token = document.querySelector('meta[name=token]').content; // only the one that is public
  return h('section', {class: 'begin'}, h('h3', {}, 'The cloud is empty'),
    h('p', {}, `Give any client of the Hetzner Cloud this endpoint, and ${token ? 'this token' : 'the token that the program has printed'}:`),
    h('pre', {}, `export HCLOUD_ENDPOINT=${endpoint}`, token && `\nexport HCLOUD_TOKEN=${token}`),
    h('p', {}, 'Or create a server right here, in a terminal:'),
    h('pre', {}, `curl -H "Authorization: Bearer $HCLOUD_TOKEN" ${endpoint}/servers \\\n` +
      `  -d '{"name": "web-1", "server_type": "cx23", "image": "debian-13"}'`),
    h('p', {}, 'What happens then is seen here at once.'));
}

/** detail shows one resource: what it is connected to, its actions, the requests that changed it, and its JSON. */
export function detail(panel, id) {
  const body = h('div'), requests = h('div');
  let item = find(id), last;
  async function readRequests() {
    try {
      const {entries} = await ask('GET', `journal?resource_id=${id}&writes=true&limit=30`);
      show(requests, table('Requests that changed it', ['Status', 'Request', 'Time', 'Client'], entries.reverse().map(e => [
        e.status || 'dropped', h('a', {href: `#/request/${e.seq}`}, `${e.method} ${e.operation || e.path}`), when(e.time), e.client]),
      'None is in the journal.'));
    } catch { /* the header says that the cloud does not answer */ }
  }
  function draw() {
    const current = find(id);
    if (current && current.resource === last && current.kind !== 'action') return;
    if (current?.resource !== last) readRequests();
    const deleted = !current && cloud.live;
    item = current ?? item;
    last = current?.resource;
    if (!item) { show(body, h('p', {}, `Nothing with the id ${id} exists.`)); return; }
    const r = item.resource;
    const near = connections(item);
    const actions = all('action').filter(a => a.resource.resources?.some(x => x.id === id)).slice(-20).reverse();
    const name = r.name || `${words(item.kind)} ${id}`, path = `projects/${item.project}/v1/${item.kind}s/${id}`;
    const power = (label, action, from) => button(label, () => act(() => ask('POST', `${path}/actions/${action}`, {}), `${label} ${name}: the API has accepted it`),
      {disabled: r.status !== from});
    show(body, h('h2', {}, r.name || r.command || String(id)),
      h('p', {class: 'kind'}, `${words(item.kind)} ${id}, project ${item.project}`, deleted && h('strong', {}, ' (deleted)')),
      h('p', {class: 'tools'}, r.status && h('span', {class: `state ${r.status}`}, r.status), !deleted && [
        item.kind === 'server' && [power('Start', 'poweron', 'off'), power('Stop', 'poweroff', 'running')],
        item.kind !== 'action' && button('Delete', () => confirm(`Delete ${name}?`) && act(() => ask('DELETE', path), `Delete ${name}: the API has accepted it`), {class: 'bad'}),
        button('Copy the id', () => copy(String(id), `${id} is in the clipboard`))]),
      r.targets && [h('h3', {}, 'Targets'), table('Targets', ['Target', 'Health', 'Why'], [...health(r).byServer].map(([target, t]) => [
        find(target) ? link(find(target)) : target, h('span', {class: `state ${t.status}`}, t.status), t.why]), 'None.')],
      h('h3', {}, 'Connected to'), near.length ? h('ul', {}, near.slice(0, 50).map(n => h('li', {}, `${words(n.kind)} `, link(n))),
        near.length > 50 && h('li', {}, `and ${near.length - 50} more`)) : h('p', {class: 'empty'}, 'Nothing.'),
      item.kind !== 'action' && [h('h3', {}, 'Actions'), actionTable(actions)],
      h('h3', {}, 'Requests that changed it'), requests,
      h('h3', {}, 'JSON'), h('pre', {tabindex: 0, 'data-key': 'json', 'data-scroll': 'json'}, JSON.stringify(r, null, 2)));
  }
  show(panel, button('Close', async () => history.back(), {class: 'close'}), body);
  draw();
  return throttled(draw);
}

/** actionTable shows actions with their progress. due, if given, has the times at which they end by their ids. */
export function actionTable(actions, due = new Map()) {
  return table('Actions', ['Status', 'Action', 'Of', 'Progress', 'Started'], actions.map(a => {
    const r = a.resource, began = Date.parse(r.started), ends = due.get(a.id);
    const part = r.status !== 'running' ? 1 : ends ? Math.min(0.99, Math.max(0, (now() - began) / (ends - began))) : r.progress / 100;
    return [h('span', {class: `state ${r.status}`}, r.error?.code ?? r.status),
      h('a', {href: `#/resource/${a.id}`, 'data-key': `action ${a.id}`}, r.command),
      r.resources.map(x => find(x.id)).filter(Boolean).slice(0, 3).map((x, i) => [i ? ', ' : '', link(x)]).flat(),
      h('progress', {max: 1, value: part, 'aria-label': `progress of ${r.command}`}), when(r.started)];
  }), 'None.');
}
