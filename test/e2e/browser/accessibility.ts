/** Accessibility checks (WCAG 2.2), measured in the page. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { installPackages } from '../tools.ts';
import { saveScreenshot } from './setup.ts';
import type { Browser } from './steps.ts';
import { KEYS } from './webdriver.ts';

let axe = '';

/** What axe finds wrong with the page as it is shown now, one line for each element. */
async function axeViolations(browser: Browser): Promise<string[]> {
  axe ||= readFileSync(
    join(installPackages('axe-core@4.10.3'), 'node_modules/axe-core/axe.min.js'),
    'utf8',
  );
  // In the test's own context, to which the page's Content-Security-Policy does not apply.
  if (await browser.run('return !globalThis.axe')) await browser.run(axe);
  return browser.runAsync(`
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target }) => id + ': ' + help + ': ' + target));`);
}

/**
 * What axe does not measure: elements that extend beyond the window, or whose content is wider than
 * they are (1.4.10), controls smaller than 24 by 24 pixels (2.5.8), and borders of controls whose
 * contrast with what is behind them is below 3 (1.4.11).
 */
const misfits = (browser: Browser): Promise<string[]> =>
  browser.run(`
    const visible = [...document.querySelectorAll('body, body *')]
      .filter((one) => one.checkVisibility());
    const controls = visible.filter((one) => one.matches('input, textarea, select, button'));
    const width = document.documentElement.clientWidth;
    const isOverflowing = (one) => {
      const { left, right } = one.getBoundingClientRect();
      if (left < -0.5 || right > width + 0.5) return true;
      if (one.matches('input, textarea, select, svg, svg *, .visually-hidden')) return false;
      return one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0;
    };
    const isSmall = (one) => {
      // A label around a control is part of its target.
      const { width, height } = (one.closest('label') ?? one).getBoundingClientRect();
      return width < 24 || height < 24;
    };
    // Mixed colors are computed as color(srgb …), with parts from 0 to 1.
    const parts = (color) => {
      const [red, green, blue, opacity = 1] = color.match(/[\\d.]+(e-\\d+)?/g).map(Number);
      const most = color.startsWith('color(srgb ') ? 1 : 255;
      return { rgb: [red / most, green / most, blue / most], opacity };
    };
    const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const luminance = (color) => {
      const [red, green, blue] = parts(color).rgb.map(linear);
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
    };
    const background = (one) => {
      const { backgroundColor } = getComputedStyle(one);
      return parts(backgroundColor).opacity > 0 || !one.parentElement
        ? backgroundColor : background(one.parentElement);
    };
    const isFaint = (one) => {
      const border = luminance(getComputedStyle(one).borderTopColor);
      const behind = luminance(background(one.parentElement));
      return Math.max(border, behind) / Math.min(border, behind) < 3;
    };
    const nameOf = (what) => (one) => what + ': ' + one.tagName.toLowerCase() + '#' + one.id;
    return [
      ...visible.filter(isOverflowing).map(nameOf('overflows')),
      ...controls.filter(isSmall).map(nameOf('is small')),
      ...controls.filter((one) => !one.disabled && isFaint(one)).map(nameOf('has a faint border')),
    ];`);

export const setViewport = (browser: Browser, name: 'desktop' | 'phone'): Promise<void> =>
  name === 'desktop' ? browser.setViewport(1_280, 900) : browser.setViewport(320, 640, 2);

/**
 * Checks the page as it is shown now, in both color schemes, on a phone, and with text of twice the
 * size (1.4.4); saves screenshots. Afterwards it is shown as before: light, on a desktop.
 * @param enlarged where the text is enlarged
 */
export async function checkPage(
  browser: Browser,
  name: string,
  enlarged: 'phone' | 'desktop' = 'phone',
): Promise<void> {
  const check = async (where: string) => {
    await saveScreenshot(browser, `${name}-${where}`);
    assert.deepEqual(await misfits(browser), [], `${name}, ${where}`);
  };
  for (const scheme of ['dark', 'light'] as const) {
    await browser.setColorScheme(scheme);
    await check(scheme);
    assert.deepEqual(await axeViolations(browser), [], `${name}, ${scheme}`);
  }
  await setViewport(browser, 'phone');
  await check('phone');
  await setViewport(browser, enlarged);
  await browser.run('document.documentElement.style.fontSize = "200%"');
  await check('large text');
  await browser.run('document.documentElement.style.fontSize = ""');
  await setViewport(browser, 'desktop');
}

const CONTROLS = 'a, button, input, select, textarea, summary';
const HIDDEN = '[type=radio]:not(:checked), :disabled';
/** What Tab reaches: of radio buttons, the chosen one. */
const VISIBLE_CONTROLS = `[...document.querySelectorAll('${CONTROLS}')]
    .filter((one) => one.checkVisibility() && !one.matches('${HIDDEN}'))`;

/** Checks that Tab reaches every control in the order of the page, each with a visible focus. */
export async function assertTabOrder(browser: Browser): Promise<void> {
  const names: string[] = await browser.run(`
    document.body.tabIndex = -1;
    document.body.focus();
    return ${VISIBLE_CONTROLS}.map((one, at) => at + ' ' + one.outerHTML.slice(0, 80));`);
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
