// What would keep somebody from using the page: elements without a name, colours without contrast, and broken structure (WCAG 2.2, levels A
// and AA, as far as a script sees it). The value is a list of texts.
(() => {
  const problems = new Set();
  const visible = e => e.checkVisibility({visibilityProperty: true, opacityProperty: true}) && e.getBoundingClientRect().width > 1;
  const name = e => (e.getAttribute('aria-label') ?? '') || [...(e.labels ?? [])].map(l => l.innerText).join(' ') ||
    e.innerText || e.getAttribute('title') || e.querySelector?.('img[alt]')?.alt || '';
  const what = e => `<${e.tagName.toLowerCase()}${e.className && typeof e.className === 'string' ? ` class="${e.className}"` : ''}> ${(e.innerText ?? '').slice(0, 40)}`;

  if (!document.documentElement.lang) problems.add('the page has no language');
  if (!document.title) problems.add('the page has no title');
  if (document.querySelectorAll('h1').length !== 1) problems.add('the page must have one h1');
  if (!document.querySelector('main')) problems.add('the page has no main');
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  for (const id of ids.filter((x, i) => ids.indexOf(x) !== i)) problems.add(`the id ${id} is not unique`);
  for (const e of document.querySelectorAll('a[href], button, input, select, textarea, summary, progress, [tabindex="0"]')) {
    if (visible(e) && !name(e).trim()) problems.add(`no name: ${what(e)}`);
  }
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) problems.add(`no alt: ${e.src}`);
  for (const e of document.querySelectorAll('table')) {
    if (!e.caption) problems.add('a table has no caption');
    if (![...e.querySelectorAll('th')].every(th => th.scope)) problems.add('a table has headings without scope');
  }
  for (const e of document.querySelectorAll('*')) {
    if (e.scrollHeight > e.clientHeight + 20 && /auto|scroll/.test(getComputedStyle(e).overflowY) && e.tabIndex < 0 && visible(e) &&
      !e.querySelector('a, button, input')) problems.add(`can be scrolled, but not by keyboard: ${what(e)}`);
  }
  let level = 0;
  for (const e of document.querySelectorAll('h1, h2, h3, h4, h5')) {
    if (!visible(e)) continue;
    const l = +e.tagName[1];
    if (l > level + 1) problems.add(`a heading leaves a level out: ${what(e)}`);
    level = l;
  }

  const channels = text => text.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const background = e => {
    for (; e; e = e.parentElement) {
      const c = channels(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0.9) return c;
    }
    return [255, 255, 255];
  };
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!text || !visible(e) || e.disabled || /^(OPTION|SCRIPT|STYLE)$/.test(e.tagName)) continue;
    const style = getComputedStyle(e);
    const [a, b] = [luminance(channels(style.color)), luminance(background(e))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || size >= 18.6 && +style.fontWeight >= 700 ? 3 : 4.5;
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < least) problems.add(`contrast ${contrast.toFixed(1)}, needs ${least}: ${what(e)}`);
  }
  return [...problems];
})()
