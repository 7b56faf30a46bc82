// The page: which view the address shows.

const views = {matrix, incidents, budgets, compare};
const main = document.getElementById('main'), panel = document.getElementById('detail');
let shown = '';  // the view on the page, with what it shows
let opener = ''; // the data-key of the link that opened the panel, which gets the focus back

/** wanted returns the view that the address shows, and all that it depends on. */
function wanted() {
  const {spec, run, view, ...rest} = address();
  const name = Object.hasOwn(views, view ?? '') ? view : 'matrix';
  return {name, spec, all: JSON.stringify([name, rest, runs.length])};
}

/** note changes the address without a new view: the one on the page shows the change itself. */
function note(changes) {
  history.replaceState(null, '', link(changes));
  shown = wanted().all;
}

function route() {
  if (!runs.length) return show(main, h('p', {class: 'empty'}, 'No run has left results yet.'));
  const {name, spec, all} = wanted();
  const wasHidden = panel.hidden;
  panel.hidden = !spec;
  if (wasHidden && spec) opener = document.activeElement?.dataset.key ?? '';
  // Links keep the rest of the address, so they are made anew with the view.
  if (all !== shown) views[name](main);
  shown = all;
  for (const a of document.querySelectorAll('header nav a')) a.ariaCurrent = a.hash === `#view=${name}` ? 'page' : null;
  if (spec) {
    detail(panel);
    if (wasHidden) {
      panel.scrollTop = 0;
      panel.focus();
    }
  } else if (!wasHidden) {
    ([...main.querySelectorAll('[data-key]')].find(e => e.dataset.key === opener) ?? main).focus();
  }
}

function theme(chosen) {
  document.documentElement.dataset.theme = chosen;
  try { localStorage.setItem('theme', chosen); } catch { /* some browsers keep nothing for files */ }
}
document.getElementById('theme').addEventListener('click', () => theme(getComputedStyle(document.documentElement).colorScheme === 'dark' ? 'light' : 'dark'));
try { if (localStorage.getItem('theme')) theme(localStorage.getItem('theme')); } catch { /* as above */ }

document.getElementById('skip').addEventListener('click', e => { e.preventDefault(); main.focus(); });

document.addEventListener('keydown', e => {
  const inField = /INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName);
  if (e.key === 'Escape' && !panel.hidden) location.hash = link({spec: '', run: ''});
  if (e.key === '/' && !inField) {
    main.querySelector('input[type=search]')?.focus();
    e.preventDefault();
  }
  if ((e.key === 'ArrowDown' || e.key === 'ArrowUp') && document.activeElement.matches('.matrix th a')) {
    const all = [...main.querySelectorAll('.matrix th a')];
    all[all.indexOf(document.activeElement) + (e.key === 'ArrowDown' ? 1 : -1)]?.focus();
    e.preventDefault();
  }
});

use(data.runs);
if (data.compare && !location.hash) history.replaceState(null, '', '#view=compare');
window.addEventListener('hashchange', route);
route();
