// The details of one spec: what it promises, its source, and what it did in each run.

function detail(panel) {
  const {spec: name, run: key} = address();
  const s = specs.find(x => x.name === name);
  const close = h('a', {class: 'button close', href: link({spec: '', run: ''}), 'data-key': 'close'}, 'Close');
  if (!s) return show(panel, close, h('h2', {}, 'This spec is in no run'), h('p', {}, name));
  const there = runs.filter(r => s.in[r.key]);
  const run = there.find(r => r.key === key) ?? there.find(r => bad(s.in[r.key].result)) ?? there.find(r => s.in[r.key].begin) ?? there[0];
  const at = [s.source, s.container].find(place => data.sources?.[place]), source = data.sources?.[at];
  show(panel, close, h('h2', {}, s.name), h('p', {class: 'kind'}, s.labels.map(l => [h('a', {class: 'chip', href: `#view=matrix&label=${encodeURIComponent(l)}`}, l), ' '])),
    h('h3', {}, 'Runs'), h('ul', {class: 'runs'}, there.map(r => h('li', {}, h('a', {href: link({run: r.key}), 'data-key': `run ${r.key}`,
      'aria-current': r === run && 'true'}, r.title), ' ', state(s.in[r.key].result), ` ${seconds(s.in[r.key].seconds)}`))),
    result(s.in[run.key], run),
    h('h3', {}, 'Source'), h('p', {}, s.source || 'The run does not say where the spec is.'),
    source ? h('details', {}, h('summary', {'data-key': 'source'}, `Show ${plural(source.trimEnd().split('\n').length, 'line')} from ${at}`), code(source, at)) :
      s.source && h('p', {class: 'empty'}, 'The file was not there when this page was made.'));
}

/** code shows lines with their numbers. */
function code(text, at) {
  const first = +at.split(':').pop();
  return h('pre', {tabindex: 0, 'data-key': 'code'}, text.trimEnd().split('\n').map((line, i) => `${String(first + i).padStart(4)}  ${line}\n`).join(''));
}

/** result shows what a spec did in a run. */
function result(c, run) {
  const sent = c.figures?.find(f => f.name === data.requestsOfTheSpec);
  const known = [['Result', state(c.result)], ['Reason', c.reason && !c.failure && reason(c)], ['Took', c.begin && seconds(c.seconds)], ['Began', c.begin && c.begin.replace('T', ' ')],
    ['Requests', sent && `${sent.value.toLocaleString('en')} of the CCM to the cloud`],
    ...(c.figures ?? []).filter(f => f !== sent).map(f => [f.name, amount(f)]), ...(c.notes ?? []).map(n => [n.name, n.text])];
  return h('section', {}, h('h3', {}, run.title), h('dl', {}, known.filter(([, value]) => value).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
    c.failure && [h('h3', {}, 'Why it failed'), h('p', {}, `${c.failure.place}, after ${seconds(c.failure.at)}`),
      h('pre', {class: 'message', tabindex: 0, 'data-key': 'message'}, c.failure.message)],
    c.failure?.timeline ? timeline(c) : steps(c),
    c.failure?.state && [h('h3', {}, 'The cloud after the failure'), h('pre', {tabindex: 0, 'data-key': 'state'}, c.failure.state)]);
}

function steps(c) {
  if (!c.steps) return [];
  const ends = i => c.steps[i + 1]?.at ?? c.seconds;
  return [h('h3', {}, 'Steps'), table('Steps', ['Step', 'After', 'Took'], c.steps.map((s, i) => [s.text, seconds(s.at), seconds(Math.max(0, ends(i) - s.at))]), '')];
}

const lanes = [['log', 'CCM’s log'], ['requests', 'Requests to the cloud'], ['events', 'Events of the cluster']];

/** timeline shows log, requests and events next to each other, with the steps and the failure between them. */
function timeline(c) {
  const all = c.failure.timeline.map(text => {
    const [, at, lane, rest] = /^(\S+) (\S*) ([^]*)$/.exec(text) ?? ['', '0', 'log', text];
    return {at: +at || 0, lane, text: rest};
  });
  const marks = [...(c.steps ?? []).map(s => ({at: s.at, mark: `Step: ${s.text}`})), {at: c.failure.at, mark: 'The spec failed', failed: true}];
  // A mark comes before the lines of its time. Sorting keeps the order of lines with the same time.
  const rows = [...marks, ...all].sort((a, b) => a.at - b.at), lines = [];
  for (const r of rows) {
    const last = lines.at(-1);
    if (!r.mark && last && !last.mark && last.at.toFixed(2) === r.at.toFixed(2)) (last[r.lane] ??= []).push(r.text);
    else lines.push(r.mark ? r : {at: r.at, [r.lane]: [r.text]});
  }
  return [h('h3', {}, 'What happened'), h('p', {class: 'small'}, 'Seconds after the spec began.',
    c.failure.left_out > 0 && ` The ${plural(c.failure.left_out, 'line')} before are left out; the log of the run has all.`),
  scrolled('What happened', h('table', {class: 'timeline'}, h('caption', {class: 'hidden'}, 'What happened'),
    h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'Second'), lanes.map(([, title]) => h('th', {scope: 'col'}, title)))),
    h('tbody', {}, lines.map(l => h('tr', {class: l.mark && (l.failed ? 'mark failed' : 'mark')}, h('th', {scope: 'row'}, l.at.toFixed(2)),
      l.mark ? h('td', {colspan: lanes.length}, l.mark) :
        lanes.map(([lane, title]) => h('td', {'data-lane': title}, (l[lane] ?? []).map(text => h('div', {class: trouble(lane, text) && 'trouble'}, text)))))))))];
}

/** trouble reports whether a line should catch the eye: an error of the log, a request that failed, a warning. */
function trouble(lane, text) {
  return lane === 'log' ? /(^|\] )[EF]\d{4} |level=error|"level":"error"/.test(text) :
    lane === 'requests' ? /→ ([045]\d*)\b/.test(text) : / Warning /.test(text);
}
