/** Accessibility checks (WCAG 2.2), measured in the page. */
import assert from 'node:assert/strict';
import { axeViolations } from './axe.ts';
import { saveScreenshot } from './setup.ts';
import { type Browser, KEYS } from './webdriver.ts';

export interface Contrast {
  /** The element with this contrast. */
  readonly element: string;
  readonly ratio: number;
}

/**
 * The lowest contrast of a text against its background, and of a control's border against the page.
 */
export function lowestContrast(
  browser: Browser,
): Promise<{ readonly text: Contrast; readonly border: Contrast }> {
  return browser.run(`
    // Mixed colors are computed as color(srgb …), with parts from 0 to 1.
    const parts = (color) => {
      const [red, green, blue, ...opacity] = color.match(/[\\d.]+(e-\\d+)?/g).map(Number);
      const most = color.startsWith('color(srgb ') ? 255 : 1;
      return [red * most, green * most, blue * most, ...opacity];
    };
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const luminance = (color) => {
      const [red, green, blue] = parts(color).map((part) => linear(part / 255));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const contrast = (one, other) => {
      const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
      return (light + 0.05) / (dark + 0.05);
    };
    const background = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const [, , , opacity = 1] = parts(getComputedStyle(at).backgroundColor);
        if (opacity > 0) return getComputedStyle(at).backgroundColor;
      }
      const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
      return isDark ? 'rgb(18, 18, 18)' : 'rgb(255, 255, 255)';
    };
    const name = (element) => element.tagName.toLowerCase() + (element.id && '#' + element.id);
    const lowest = (elements, color, behind) => {
      const ratio = (one) => contrast(getComputedStyle(one)[color], background(behind(one)));
      return elements.map((one) => ({ element: name(one), ratio: ratio(one) }))
        .reduce((a, b) => (b.ratio < a.ratio ? b : a), { element: 'nothing', ratio: 99 });
    };
    // Disabled controls are exempt (1.4.3).
    const isExempt = (one) => one.matches(':disabled, svg, svg *, option');
    const isMeasured = (one) => one.checkVisibility() && !isExempt(one);
    const isText = (node) => node.nodeType === 3 && node.data.trim() !== '';
    const hasText = (one) => [...one.childNodes].some(isText);
    const all = [...document.querySelectorAll('body *')].filter(isMeasured);
    const texts = all.filter((one) => one.matches('input, textarea, select') || hasText(one));
    const controls = all.filter((one) => one.matches('input, textarea, select, button'));
    return {
      text: lowest(texts, 'color', (one) => one),
      border: lowest(controls, 'borderTopColor', (one) => one.parentElement),
    };
  `);
}

/** Elements that extend beyond the window, or whose content is wider than they are. */
export function overflowing(browser: Browser): Promise<string[]> {
  return browser.run(`
    const width = document.documentElement.clientWidth;
    const isOverflowing = (one) => {
      const { left, right } = one.getBoundingClientRect();
      if (left < -0.5 || right > width + 0.5) return true;
      if (one.matches('input, textarea, select, svg, svg *, .visually-hidden')) return false;
      return one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0;
    };
    const all = [...document.querySelectorAll('body, body *')];
    const visible = all.filter((one) => one.checkVisibility());
    const nameOf = (one) => one.tagName.toLowerCase() + '#' + one.id;
    const found = visible.filter(isOverflowing).map(nameOf);
    const { scrollWidth } = document.documentElement;
    return scrollWidth > width ? [...found, 'the page: ' + scrollWidth + ' of ' + width] : found;
  `);
}

/** Controls smaller than 24 by 24 pixels (2.5.8). */
export function tooSmall(browser: Browser): Promise<string[]> {
  return browser.run(`
    const controls = [...document.querySelectorAll('input, textarea, select, button')];
    return controls.filter((one) => one.checkVisibility()).filter((one) => {
      // A label around a control is part of its target.
      const { width, height } = (one.closest('label') ?? one).getBoundingClientRect();
      return width < 24 || height < 24;
    }).map(({ id }) => id);
  `);
}

/** Controls and links without an accessible name (4.1.2), and ids that are used twice. */
export const unnamed = (browser: Browser): Promise<string[]> =>
  browser.run(`
  const isNamed = (one) =>
    one.labels?.length > 0 || one.innerText?.trim() || one.getAttribute('aria-label');
  const all = [...document.querySelectorAll('input, button, a, select, svg')];
  const isWithoutName = (one) =>
    one.checkVisibility() && !one.matches('[type=hidden]') && !isNamed(one);
  const ids = [...document.querySelectorAll('[id]')].map(({ id }) => id);
  const found = all.filter(isWithoutName).map((one) => one.outerHTML);
  if (!document.documentElement.lang) found.push('the page has no language');
  return [...found, ...ids.filter((id, at) => ids.indexOf(id) !== at)];`);

/** What does not fit where it stands, on the page that is shown. */
export const misfits = (browser: Browser): Promise<string[]> =>
  browser.run(`
  const found = [];
  const text = document.createElement('canvas').getContext('2d');
  for (const select of document.querySelectorAll('select')) {
    text.font = getComputedStyle(select).font;
    const widths = [...select.options].map((option) => text.measureText(option.text).width);
    // The padding, and the arrow.
    if (Math.max(...widths) > select.clientWidth - 44) found.push('choices of ' + select.name);
  }
  for (const box of document.querySelectorAll('pre')) {
    const { lineHeight, paddingTop } = getComputedStyle(box);
    const lines = (box.clientHeight - 2 * parseFloat(paddingTop)) / parseFloat(lineHeight);
    if (Math.round(lines) > box.textContent.split('\\n').length) found.push('broken lines');
  }
  for (const card of document.querySelectorAll('.card.flush'))
    if (card.scrollWidth > card.clientWidth) found.push('a table');
  for (const confirm of document.querySelectorAll('p + details.confirm')) {
    const { bottom } = confirm.previousElementSibling.getBoundingClientRect();
    if (confirm.getBoundingClientRect().top - bottom < 12) found.push('a button without a gap');
  }
  for (const row of document.querySelectorAll('.row')) {
    const labels = [...row.querySelectorAll('label')].filter((one) => one.checkVisibility());
    const tops = new Set(labels.map((label) => Math.round(label.getBoundingClientRect().top)));
    if (innerWidth > 1000 && tops.size > 1) found.push('labels of one row');
  }
  return found;`);

const VIEWPORTS = {
  desktop: { width: 1_280, height: 900, deviceScaleFactor: 1, mobile: false },
  phone: { width: 320, height: 640, deviceScaleFactor: 2, mobile: true },
  'large phone': { width: 360, height: 740, deviceScaleFactor: 2, mobile: true },
  tablet: { width: 768, height: 1_024, deviceScaleFactor: 2, mobile: true },
} as const;
export type Viewport = keyof typeof VIEWPORTS;

export const setViewport = (browser: Browser, name: Viewport): Promise<void> =>
  browser.setViewport(VIEWPORTS[name]);

export const enlargeText = (browser: Browser): Promise<void> =>
  browser.run('document.documentElement.style.fontSize = "200%"');

/**
 * A state of a page: how to reach it, and the role and accessible name of its controls by element
 * id.
 */
export type PageState = readonly [
  name: string,
  open: () => Promise<unknown>,
  controls: Readonly<Record<string, readonly [role: string, name: string]>>,
];

/** Opens a state on a desktop in light colors and checks its heading and its controls. */
export async function openState(browser: Browser, [, open, controls]: PageState): Promise<void> {
  await setViewport(browser, 'desktop');
  await browser.setColorScheme('light');
  await open();
  const headings = '[...document.querySelectorAll("h1")].filter((one) => one.checkVisibility())';
  await browser.until(`${headings}.length === 1`);
  for (const [id, expected] of Object.entries(controls)) {
    assert.deepEqual([await roleOf(browser, id), await browser.nameOf(id)], expected, id);
  }
}

/** A password field has no role (HTML-AAM), as Firefox says. Chromium calls it a text box. */
async function roleOf(browser: Browser, id: string): Promise<string> {
  const type = await browser.run('return document.getElementById(arguments[0]).type', id);
  return type === 'password' ? 'textbox' : browser.roleOf(id);
}

/**
 * Checks the rules of axe, contrast, overflow and target size in both color schemes and widths;
 * saves screenshots.
 */
export async function checkAppearance(browser: Browser, state: string): Promise<void> {
  for (const scheme of ['light', 'dark'] as const) {
    await browser.setColorScheme(scheme);
    for (const viewport of ['desktop', 'phone'] as const) {
      await setViewport(browser, viewport);
      const where = `${scheme}, ${viewport}`;
      await saveScreenshot(browser, `${state}-${scheme}-${viewport}`);
      assert.deepEqual(await axeViolations(browser), [], `${where}: axe`);
      const { text, border } = await lowestContrast(browser);
      // 1.4.3 and 1.4.11.
      assert.ok(text.ratio >= 4.5, `${where}: ${text.element} has ${text.ratio}:1`);
      assert.ok(border.ratio >= 3, `${where}: ${border.element} has ${border.ratio}:1`);
      assert.deepEqual(await overflowing(browser), [], `${where}: nothing overflows`);
      assert.deepEqual(await tooSmall(browser), [], `${where}: every control is large enough`);
    }
  }
}

/** Checks that the focused element shows a focus indicator (2.4.7). */
export async function assertFocusVisible(browser: Browser, id: string): Promise<void> {
  const [style, width] = await browser.run(`
    const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
    return [outlineStyle, parseFloat(outlineWidth)];
  `);
  assert.ok(style === 'solid' && width >= 2, `${id} shows that it has the focus`);
}

/** Every visible control of the page, and only these, in its order. */
const CONTROLS = 'a, button, input, select, textarea, summary';
const VISIBLE_CONTROLS = `[...document.querySelectorAll('${CONTROLS}')]
    .filter((one) => one.checkVisibility())`;

/** Checks that Tab reaches every control in the order of the page, each with a visible focus. */
export async function assertTabOrder(browser: Browser): Promise<void> {
  const names: string[] = await browser.run(`
    document.body.tabIndex = -1;
    document.body.focus();
    const nameOf = (one, at) => at + ' ' + one.outerHTML.slice(0, 80);
    return ${VISIBLE_CONTROLS}.map(nameOf);`);
  const reached: number[] = [];
  // A field for a date has several stops, and a browser stops at what can be scrolled.
  for (let i = 0; i < 4 * names.length && reached.length < names.length; i += 1) {
    await browser.press(KEYS.Tab);
    const [at, style] = await browser.run(`
      const { activeElement: one } = document;
      return [${VISIBLE_CONTROLS}.indexOf(one), getComputedStyle(one).outlineStyle];`);
    if (at === -1 || at === reached.at(-1)) continue;
    assert.ok(['solid', 'auto'].includes(style), `a visible focus: ${names[at]}`);
    reached.push(at);
  }
  assert.deepEqual(
    reached.map((at) => names[at]),
    names,
  );
}

/** Everything that a state of a page must pass, with nothing in the console of the browser. */
export async function checkState(browser: Browser, state: PageState): Promise<void> {
  await openState(browser, state);
  assert.deepEqual(await unnamed(browser), []);
  await checkAppearance(browser, `signin-${state[0]}`);
  for (const viewport of ['large phone', 'tablet'] as const) {
    await setViewport(browser, viewport);
    assert.deepEqual(await overflowing(browser), [], `${viewport}: nothing overflows`);
  }
  await setViewport(browser, 'desktop');
  await enlargeText(browser);
  assert.deepEqual(await overflowing(browser), [], 'nothing overflows at 200 %');
  await assertTabOrder(browser);
  const messages = (await browser.log())
    .filter(({ source }) => source !== 'network')
    .map(({ message }) => message);
  assert.deepEqual(messages, [], 'the browser reports an error');
  await browser.setColorScheme('light');
}
