// The map: load balancers and Floating IPs on the left, networks with their servers on the right, and lines between them.

import {h, show, words, plural, bytes, labelled, regularly} from './dom.js';
import {all, find} from './store.js';
import {health, link, throttled, begin} from './resources.js';

// How servers are drawn depends on their number: with all that they have, by name, or as dots, of which at most maxDots are drawn.
const full = 60, named = 300, maxDots = 2000;

// What moves: of load balancers by id {open, requests, connections, bytes}, and of their targets by both ids {open, taken, total}. All but
// open and total are per second.
const traffic = new Map();
let before = new Map(), beforeAt = 0;

/** targetKey names a target in traffic by the id of its server, or by its address. */
const targetKey = (lb, target) => `${lb} ${target}`;

/** readTraffic reads the figures of load balancers from the metrics, and computes the rates since the last call. */
async function readTraffic() {
  const text = await (await fetch('metrics')).text();
  const at = performance.now(), totals = new Map();
  for (const line of text.split('\n')) {
    const m = line.match(/^fakecloud_load_balancer_(target_)?(open|connections|requests|bytes|taken)(?:_connections|_total)?\{(.*)\} (\S+)$/);
    if (!m) continue;
    const label = name => m[3].match(`(?:^|,)${name}="([^"]*)"`)?.[1];
    const lb = label('load_balancer'), key = m[1] ? targetKey(lb, label('server') || label('address')) : lb;
    const t = totals.get(key) ?? {open: 0, connections: 0, requests: 0, bytes: 0, taken: 0};
    t[m[2]] += +m[4];
    totals.set(key, t);
  }
  const seconds = (at - beforeAt) / 1000;
  traffic.clear();
  for (const [key, t] of totals) {
    const b = before.get(key) ?? t;
    const rate = name => Math.max(0, t[name] - b[name]) / seconds;
    traffic.set(key, {open: t.open, total: t.taken, connections: rate('connections'), requests: rate('requests'), bytes: rate('bytes'),
      taken: rate('taken')});
  }
  [before, beforeAt] = [totals, at];
}

const figure = n => n.toFixed(n < 9.95 ? 1 : 0);

/** gets says what a target gets: what it serves now, and how much comes. It is empty for one that gets nothing. */
function gets(lb, target) {
  const t = traffic.get(targetKey(lb, target));
  return t && (t.open || t.taken) ? `${t.open} open, ${figure(t.taken)}/s` : '';
}

const byName = items => items.length > maxDots ? items : items.sort((a, b) => a.resource.name.localeCompare(b.resource.name, 'en', {numeric: true}));

/** drawMap shows the map until what it returns is called. */
export function drawMap(main) {
  let search = '';
  const field = h('input', {type: 'search', placeholder: 'name, label, address', oninput: () => { search = field.value.toLowerCase(); draw(); }});
  const view = h('div', {class: 'map'});
  const summary = h('span', {class: 'summary'});
  show(main, h('h2', {}, 'Map'), h('p', {class: 'tools'}, labelled('Search', field), summary), view);

  const matches = r => !search || JSON.stringify([r.name, r.labels, r.public_net, r.private_net]).toLowerCase().includes(search);

  function draw() {
    const servers = byName(all('server').filter(s => matches(s.resource)));
    const balancers = byName(all('load_balancer')), networks = all('network'), floating = all('floating_ip');
    if (!all('server').length && !balancers.length && !networks.length && !floating.length) {
      show(view, begin());
      return;
    }
    const flow = name => balancers.reduce((sum, lb) => sum + (traffic.get(String(lb.id))?.[name] ?? 0), 0);
    summary.textContent = [plural(servers.length, 'server'), plural(balancers.length, 'load balancer'), plural(networks.length, 'network'),
      ...traffic.size ? [`${figure(flow('connections'))} connections/s`, `${bytes(flow('bytes'))}/s`] : []].join(', ');
    const byNetwork = new Map(networks.map(n => [n.id, []])), outside = [];
    for (const s of servers) (byNetwork.get(s.resource.private_net?.[0]?.network) ?? outside).push(s);
    const chips = attached(servers);
    const draws = servers.length <= full ? card : servers.length <= named ? label : dot;
    show(view,
      h('div', {class: 'edge'}, h('h3', {}, 'Internet'), balancers.slice(0, 100).map(balancer),
        balancers.length > 100 && h('p', {}, `and ${plural(balancers.length - 100, 'more load balancer')}`),
        floating.slice(0, 100).map(f => h('div', {class: 'box address'}, 'Floating IP ', link(f), h('div', {class: 'small'}, f.resource.ip,
          f.resource.server ? ' → ' : ' is not assigned', f.resource.server && find(f.resource.server) && link(find(f.resource.server))))),
        rest('volume', v => !v.server, 'Volumes of no server'), rest('firewall', () => true, 'Firewalls')),
      h('div', {class: 'networks'},
        networks.map(n => networkBox(n, byNetwork.get(n.id), draws, chips)),
        outside.length > 0 && h('section', {class: 'box network'}, h('h3', {}, networks.length ? 'In no network' : 'Servers'), grid(outside, draws, chips))));
    if (draws === card) connect(view, balancers);
  }
  draw();
  const stop = regularly(2000, async () => { if (all('load_balancer').length) { await readTraffic(); draw(); } });
  const lines = () => connect(view, byName(all('load_balancer')));
  window.addEventListener('resize', lines);
  const off = throttled(draw);
  return () => { stop(); window.removeEventListener('resize', lines); off(); };
}

/** attached returns what is drawn on servers, by their ids: volumes, firewalls, Floating IPs, routes and the running action. */
function attached(servers) {
  const on = new Map(servers.map(s => [s.id, []]));
  const add = (id, text, item, state = '', more = '') => on.get(id)?.push({text, item, state, more});
  for (const lb of all('load_balancer')) {
    for (const [id, {status, why}] of health(lb.resource).byServer) {
      const got = gets(lb.id, id), t = traffic.get(targetKey(lb.id, id));
      add(id, [lb.resource.name, [why, got].filter(Boolean).join(', ')].filter(Boolean).join(': '), lb, `state ${status}`,
        [why, t && `has sent ${t.total.toLocaleString('en')} here`].filter(Boolean).map(text => `, ${text}`).join(''));
    }
  }
  for (const v of all('volume')) add(v.resource.server, `${v.resource.size} GB`, v);
  for (const f of all('floating_ip')) add(f.resource.server, f.resource.ip, f);
  for (const s of servers) for (const f of s.resource.public_net?.firewalls ?? []) add(s.id, find(f.id)?.resource.name ?? 'firewall', find(f.id));
  const byAddress = new Map();
  for (const s of servers) for (const p of s.resource.private_net ?? []) byAddress.set(`${p.network} ${p.ip}`, s.id);
  for (const n of all('network')) for (const r of n.resource.routes) add(byAddress.get(`${n.id} ${r.gateway}`), `⇠ ${r.destination}`, n);
  for (const a of all('action')) {
    if (a.resource.status !== 'running') continue;
    for (const r of a.resource.resources) if (r.type === 'server') add(r.id, `${words(a.resource.command)} …`, a);
  }
  return on;
}

function balancer(lb) {
  const r = lb.resource, h1 = health(r), t = traffic.get(String(lb.id));
  return h('article', {class: 'box balancer', 'data-lb': lb.id}, h('h4', {}, link(lb)),
    h('div', {class: 'small'}, r.public_net?.ipv4?.ip ?? 'no address yet', ` · ${r.load_balancer_type.name}`),
    r.services.map(s => h('div', {class: 'small'}, `${s.protocol} ${s.listen_port} → ${s.destination_port}`)),
    h('div', {class: `state ${h1.status}`}, h1.text),
    r.targets.filter(x => x.type === 'ip' && gets(lb.id, x.ip.ip)).slice(0, 20).map(x =>
      h('div', {class: 'small'}, `${x.ip.ip}: ${gets(lb.id, x.ip.ip)}`)),
    t && h('div', {class: 'small'}, !t.open && !t.connections && !t.bytes ? 'no traffic' : [plural(t.open, 'connection'), ' open',
      h('br'), t.requests >= 0.5 ? `${figure(t.requests)} requests/s` : `${figure(t.connections)} connections/s`, `, ${bytes(t.bytes)}/s`]));
}

function networkBox(n, servers, draws, chips) {
  const r = n.resource;
  const bySubnet = new Map(r.subnets.map(s => [s.ip_range, []])), none = [];
  for (const s of servers) {
    const ip = s.resource.private_net.find(p => p.network === n.id)?.ip;
    (bySubnet.get(r.subnets.find(sub => contains(sub.ip_range, ip))?.ip_range) ?? none).push(s);
  }
  return h('section', {class: 'box network'}, h('h3', {}, 'Network ', link(n), ' ', h('span', {class: 'small'}, r.ip_range)),
    r.subnets.map(s => h('div', {class: 'subnet'}, h('div', {class: 'small'}, `Subnet ${s.ip_range} · ${s.type} · ${s.network_zone}`),
      grid(bySubnet.get(s.ip_range), draws, chips))), none.length > 0 && grid(none, draws, chips),
    r.routes.length > 0 && h('details', {}, h('summary', {'data-key': `routes ${n.id}`}, plural(r.routes.length, 'route')),
      h('ul', {}, r.routes.slice(0, 200).map(x => h('li', {class: 'small'}, `${x.destination} → ${x.gateway}`)))));
}

const number = ip => ip.split('.').reduce((n, part) => n * 256 + +part, 0);

function contains(range, ip) {
  if (!ip) return false;
  const [start, bits] = range.split('/');
  const size = 2 ** (32 - bits);
  return Math.floor(number(start) / size) === Math.floor(number(ip) / size);
}

const grid = (servers, draws, chips) => [
  h('div', {class: `grid ${draws.name}s`}, servers.slice(0, maxDots).map(s => draws(s, chips.get(s.id)))),
  servers.length > maxDots && h('p', {class: 'small'}, `and ${plural(servers.length - maxDots, 'more server')}; search, or look at the table`),
];

function card(s, chips) {
  const r = s.resource;
  return h('article', {class: 'server', 'data-server': s.id}, h('h4', {}, h('span', {class: `dot ${r.status}`, title: r.status}), link(s)),
    h('div', {class: 'small'}, `${r.server_type.name} · ${r.location?.name ?? r.datacenter?.location?.name}`,
      r.status !== 'running' && ` · ${r.status}`),
    h('div', {class: 'small'}, [r.private_net?.[0]?.ip, r.public_net?.ipv4?.ip].filter(Boolean).join(' · ')),
    chips.length > 0 && h('div', {class: 'chips'}, chips.slice(0, 6).map(c => h('a', {class: `chip ${c.state}`, href: `#/resource/${c.item?.id}`,
      title: c.item ? words(c.item.kind) + c.more : ''}, c.text)), chips.length > 6 && h('span', {class: 'chip'}, `+${chips.length - 6}`)));
}

const label = s => h('a', {class: 'server', href: `#/resource/${s.id}`, 'data-key': `server ${s.id}`},
  h('span', {class: `dot ${s.resource.status}`}), s.resource.name);

const dot = s => h('a', {class: `dot ${s.resource.status}`, href: `#/resource/${s.id}`, title: s.resource.name, tabindex: -1,
  'aria-label': `${s.resource.name}, ${s.resource.status}`});

function rest(kind, wanted, title) {
  const items = all(kind).filter(i => wanted(i.resource));
  if (!items.length) return null;
  return h('section', {class: 'box'}, h('h3', {}, title), h('ul', {}, items.slice(0, 30).map(i => h('li', {}, link(i))),
    items.length > 30 && h('li', {}, `and ${items.length - 30} more`)));
}

/** connect draws a line from each load balancer to each of its targets, in the colour of its health. It is thick while the target gets something.
 * It runs between the rows of cards and ends at the card's upper edge. Those of different load balancers run side by side. */
function connect(view, balancers) {
  view.querySelector('svg.lines')?.remove();
  const ns = 'http://www.w3.org/2000/svg', svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('class', 'lines');
  svg.setAttribute('aria-hidden', 'true');
  const {left, top} = view.getBoundingClientRect();
  for (const [i, lb] of balancers.entries()) {
    const from = view.querySelector(`[data-lb="${lb.id}"]`)?.getBoundingClientRect();
    if (!from) continue;
    for (const [server, {status}] of health(lb.resource).byServer) {
      const card = view.querySelector(`[data-server="${server}"]`), to = card?.getBoundingClientRect();
      if (!to || to.left < from.right) continue; // below each other on a narrow screen
      const lane = i % 4, x1 = from.right - left, y1 = from.top + from.height / 2 - top, x2 = to.left - left + 14 + 6 * lane, y2 = to.top - top;
      const y = y2 - 6 - 4 * lane, x = card.closest('.network').getBoundingClientRect().left - left, middle = (x1 + x) / 2;
      const path = document.createElementNS(ns, 'path');
      path.setAttribute('d', `M${x1} ${y1} C${middle} ${y1} ${middle} ${y} ${x} ${y} H${x2 - 5} Q${x2} ${y} ${x2} ${y + 5} V${y2}`);
      path.setAttribute('class', gets(lb.id, server) ? `${status} busy` : status);
      svg.append(path);
    }
  }
  view.append(svg);
}
