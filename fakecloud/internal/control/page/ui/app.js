// The page: its header, and which view the address shows.

import {h, show, ask} from './dom.js';
import {cloud, follow, now, onChange, changed} from './store.js';
import {resources, detail} from './resources.js';
import {drawMap} from './map.js';
import {requests, request} from './requests.js';
import {actions, clock} from './clock.js';
import {incidents} from './incidents.js';

const views = {map: drawMap, resources, requests, actions, incidents, clock};
const main = document.getElementById('main'), panel = document.getElementById('detail');

let view = '', endView = () => {}, endDetail = () => {};
let opener = ''; // the data-key of the link that opened the panel, which gets the focus back

/** route shows what the address says: a view, and beside it one resource or one request. */
function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, '').split('/');
  endDetail();
  endDetail = () => {};
  const wasHidden = panel.hidden;
  panel.hidden = name !== 'resource' && name !== 'request';
  if (!panel.hidden) {
    if (!view) open('map', []);
    if (wasHidden) opener = document.activeElement?.dataset.key ?? '';
    endDetail = (name === 'resource' ? detail : request)(panel, +rest[0]);
    panel.scrollTop = 0;
    panel.focus();
    return;
  }
  open(views[name] ? name : 'map', rest);
  if (!wasHidden) ([...main.querySelectorAll('[data-key]')].find(e => e.dataset.key === opener) ?? main).focus();
}

function open(name, rest) {
  const place = [name, ...rest].join('/');
  if (place === view) return;
  endView();
  view = place;
  endView = views[name](main, rest);
  for (const a of document.querySelectorAll('header nav a')) {
    if (a.hash === `#/${name}`) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
}

// The header.

const project = document.getElementById('project');
project.addEventListener('change', () => { cloud.project = +project.value; changed(); });

function header() {
  const live = document.getElementById('live');
  const text = cloud.live ? 'live' : 'not connected';
  if (live.textContent !== text) live.textContent = text;
  live.className = cloud.live ? 'good' : 'bad';
  const names = JSON.stringify([...cloud.projects]);
  if (project.dataset.names !== names) {
    project.dataset.names = names;
    show(project, h('option', {value: ''}, 'all'), [...cloud.projects].map(([id, name]) => h('option', {value: id}, name || String(id))));
    project.value = cloud.project || '';
  }
}
onChange(header);

setInterval(() => {
  if (cloud.at) document.getElementById('time').textContent =
    `${new Date(now()).toISOString().slice(0, 19).replace('T', ' ')}${cloud.speed === 1 ? '' : cloud.speed ? ` ×${cloud.speed}` : ' (stopped)'}`;
}, 500);

let last = null;
setInterval(async () => {
  if (document.hidden) return;
  try {
    const {last_seq: seq} = await ask('GET', 'journal/count?since=999999999999999');
    const at = performance.now();
    if (last) document.getElementById('rate').textContent = `${Math.round((seq - last.seq) / (at - last.at) * 1000)} requests/s`;
    last = {seq, at};
  } catch { /* the header says that the cloud does not answer */ }
}, 2000);

document.getElementById('theme').addEventListener('click', () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === 'dark' ||
    !document.documentElement.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  localStorage.setItem('theme', document.documentElement.dataset.theme);
});
if (localStorage.getItem('theme')) document.documentElement.dataset.theme = localStorage.getItem('theme');

document.addEventListener('keydown', e => {
  if (e.key === 'Escape' && !panel.hidden) history.back();
  if (e.key === '/' && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) {
    main.querySelector('input[type=search]')?.focus();
    e.preventDefault();
  }
});

window.addEventListener('hashchange', route);
route();
follow();
