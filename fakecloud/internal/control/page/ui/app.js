// The page: its header, and which view the address shows.

import {ask, options, regularly} from './dom.js';
import {cloud, follow, now, onChange, changed} from './store.js';
import {resources, detail} from './resources.js';
import {drawMap} from './map.js';
import {requests, request} from './requests.js';
import {actions, clock} from './clock.js';
import {incidents, readRunning} from './incidents.js';

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
  for (const a of document.querySelectorAll('header nav a')) a.ariaCurrent = a.hash === `#/${name}` ? 'page' : null;
}

// The header.

const project = document.getElementById('project');
project.addEventListener('change', () => { cloud.project = +project.value; changed(); });

function header() {
  const live = document.getElementById('live');
  const text = cloud.live ? 'live' : 'not connected';
  if (live.textContent !== text) live.textContent = text;
  live.className = cloud.live ? 'good' : 'bad';
  options(project, [['', 'all projects'], ...[...cloud.projects].map(([id, name]) => [id, name || String(id)])]);
  cloud.project = +project.value;
}
onChange(header);

setInterval(() => {
  if (cloud.at) document.getElementById('time').textContent =
    `${new Date(now()).toISOString().slice(0, 19).replace('T', ' ')}${cloud.speed === 1 ? '' : cloud.speed ? ` ×${cloud.speed}` : ' (stopped)'}`;
}, 500);

let last = null;
regularly(2000, async () => {
  await readRunning();
  const {last_seq: seq} = await ask('GET', 'journal/count?since=999999999999999');
  const at = performance.now();
  if (last) document.getElementById('rate').textContent = `API ${Math.round((seq - last.seq) / (at - last.at) * 1000)} requests/s`;
  last = {seq, at};
});

const {dataset} = document.documentElement;
dataset.theme = localStorage.getItem('theme') ?? '';
document.getElementById('theme').addEventListener('click', () => {
  const dark = dataset.theme ? dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  localStorage.setItem('theme', dataset.theme = dark ? 'light' : 'dark');
});

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
