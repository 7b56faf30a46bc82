// The live copy of the cloud. The event stream keeps it; pages read it and are told when it has changed.

import {ask} from './dom.js';

const keptActions = 2000; // finished ones

export const cloud = {
  projects: new Map(), // names by id
  items: new Map(),    // all resources and actions by id: {id, kind, project, resource}
  kinds: new Map(),    // by kind, a map of items by id
  project: 0,          // the chosen one, 0 for all
  time: 0, speed: 1, at: 0,
  live: false,
};

/** now returns the cloud's time in milliseconds. */
export const now = () => cloud.time + (performance.now() - cloud.at) * cloud.speed;

const listeners = new Set();
let told = false;

/** onChange calls back at most once per frame while the cloud changes. It returns what ends that. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function changed() {
  if (told) return;
  told = true;
  setTimeout(() => {
    told = false;
    for (const listener of listeners) listener();
  }, 16);
}

/** all returns the items of a kind in the chosen project. */
export function all(kind) {
  const items = [...(cloud.kinds.get(kind)?.values() ?? [])];
  return cloud.project ? items.filter(i => i.project === cloud.project) : items;
}

export const find = id => cloud.items.get(id);

function put(e) {
  const item = {id: e.id, kind: e.kind, project: e.project, resource: e.resource};
  cloud.items.set(e.id, item);
  let kind = cloud.kinds.get(e.kind);
  if (!kind) cloud.kinds.set(e.kind, kind = new Map());
  kind.delete(e.id); // so that the latest actions are at the end
  kind.set(e.id, item);
  if (e.kind === 'action' && kind.size > keptActions) forgetActions(kind);
}

function forgetActions(kind) {
  for (const [id, item] of kind) {
    if (kind.size <= keptActions * 0.9) break;
    if (item.resource.status === 'running') continue;
    kind.delete(id);
    cloud.items.delete(id);
  }
}

// complete gives an updated load balancer or firewall its servers: the event has only those that changed.
function complete({id, resource, servers}) {
  const lists = r => r?.targets ?? r?.applied_to ?? [], nested = resource.targets ? 'targets' : 'applied_to_resources';
  const changed = new Set(servers.map(s => s.id)), old = lists(find(id)?.resource);
  const now = (selector, before = []) => [...before.filter(t => !changed.has(t.server.id)),
    ...servers.flatMap(s => s.targets.filter(t => t.selector === selector).map(t => t.target))];
  const selectorOf = t => t.label_selector?.selector;
  for (const t of lists(resource)) {
    if (t.label_selector) t[nested] = now(selectorOf(t), old.find(o => selectorOf(o) === selectorOf(t))?.[nested]);
  }
  resource.applied_to?.push(...now(undefined, old.filter(t => t.server)));
}

function apply(e) {
  switch (e.type) {
    case 'existing': case 'created': case 'updated':
      if (e.servers) complete(e);
      if (e.resource) put(e);
      if (!cloud.projects.has(e.project)) cloud.projects.set(e.project, ''), readProjects();
      break;
    case 'deleted':
      cloud.items.delete(e.id);
      cloud.kinds.get(e.kind)?.delete(e.id);
      break;
    case 'synced':
      cloud.live = true;
  }
}

async function readProjects() {
  clearTimeout(readProjects.timer);
  readProjects.timer = setTimeout(async () => {
    try {
      const {projects} = await ask('GET', 'projects');
      cloud.projects = new Map(projects.map(p => [p.id, p.name]));
      changed();
    } catch { /* the next change asks again */ }
  }, 200);
}

export async function readClock() {
  try {
    const {time, speed} = await ask('GET', 'clock');
    Object.assign(cloud, {time: Date.parse(time), speed, at: performance.now()});
  } catch { /* the header says that the cloud does not answer */ }
}

async function readStream() {
  const resp = await fetch('events?snapshot=true');
  if (!resp.ok) throw new Error(`events: ${resp.status}`);
  cloud.items.clear();
  cloud.kinds.clear();
  const reader = resp.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line) apply(JSON.parse(line));
    changed();
  }
}

/** follow keeps the copy until the page is closed. */
export async function follow() {
  readProjects();
  setInterval(readClock, 5000);
  for (;;) {
    await readClock();
    try { await readStream(); } catch { /* the cloud is gone, or was not fast enough; it may come back */ }
    cloud.live = false;
    changed();
    await new Promise(resolve => setTimeout(resolve, 1000));
  }
}

// The members of a resource's JSON that hold ids of other resources.
const reference = /^(id|server|servers|network|networks|volume|volumes|load_balancer|load_balancers|firewall|firewalls|certificates|ssh_keys|primary_ips|floating_ips|placement_group|image|assignee_id|gateway)$/;

/** connections returns the resources that a resource names, and those that name it. */
export function connections(item) {
  const found = new Map();
  for (const id of namedIn(item.resource)) if (id !== item.id && find(id)) found.set(id, find(id));
  for (const other of cloud.items.values()) {
    if (other.kind !== 'action' && other.project === item.project && other.id !== item.id && !found.has(other.id) &&
      namedIn(other.resource).has(item.id)) found.set(other.id, other);
  }
  return [...found.values()];
}

const namedBy = new WeakMap();

function namedIn(resource) {
  let ids = namedBy.get(resource);
  if (!ids) {
    namedBy.set(resource, ids = new Set());
    collect(resource, '', ids);
  }
  return ids;
}

function collect(value, name, ids) {
  if (Array.isArray(value)) for (const v of value) collect(v, name, ids);
  else if (value && typeof value === 'object') for (const [n, v] of Object.entries(value)) collect(v, n, ids);
  else if (typeof value === 'number' && reference.test(name)) ids.add(value);
}
