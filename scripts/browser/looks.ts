/** What eyes and fingers find on a page, measured there. */
import type { Browser } from './webdriver.ts';

export interface Contrast {
  /** The element that has the least. */
  readonly what: string;
  readonly ratio: number;
}

/** The least contrast (WCAG 2.2) of a text against what is behind it, and of a field's or button's edge against the page. */
export function faintest(browser: Browser): Promise<{ readonly texts: Contrast; readonly lines: Contrast }> {
  return browser.run(`
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const luminance = (colour) => {
      const [red, green, blue] = parts(colour).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const contrast = (one, other) => {
      const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
      return (light + 0.05) / (dark + 0.05);
    };
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const [, , , opacity = 1] = parts(getComputedStyle(at).backgroundColor);
        if (opacity > 0) return getComputedStyle(at).backgroundColor;
      }
      return matchMedia('(prefers-color-scheme: dark)').matches ? 'rgb(18, 18, 18)' : 'rgb(255, 255, 255)';
    };
    const name = (element) => element.tagName.toLowerCase() + (element.id && '#' + element.id);
    const least = (found) => found.reduce((a, b) => (b.ratio < a.ratio ? b : a), { what: 'nothing', ratio: 99 });
    // What is disabled is not meant to be read (1.4.3).
    const all = [...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() && !one.matches(':disabled, svg, svg *, option'));
    const isText = (one) => one.matches('input, textarea, select') || [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '');
    return {
      texts: least(all.filter(isText).map((one) => ({ what: name(one), ratio: contrast(getComputedStyle(one).color, behind(one)) }))),
      lines: least(all.filter((one) => one.matches('input, textarea, select, button')).map((one) => ({ what: name(one), ratio: contrast(getComputedStyle(one).borderTopColor, behind(one.parentElement)) }))),
    };
  `);
}

/** What reaches beyond the sides of the window, or is wider than its own place. */
export function overflowing(browser: Browser): Promise<string[]> {
  return browser.run(`
    const width = document.documentElement.clientWidth;
    const out = [...document.querySelectorAll('body, body *')].filter((one) => one.checkVisibility()).filter((one) => {
      const { left, right } = one.getBoundingClientRect();
      return left < -0.5 || right > width + 0.5 || (!one.matches('input, textarea, select, svg, svg *') && one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0);
    }).map((one) => one.tagName.toLowerCase() + '#' + one.id);
    return document.documentElement.scrollWidth > width ? [...out, 'the page: ' + document.documentElement.scrollWidth + ' of ' + width] : out;
  `);
}

/** Controls that are smaller than a fingertip: 24 by 24 (WCAG 2.2, 2.5.8). */
export function tooSmall(browser: Browser): Promise<string[]> {
  return browser.run(`
    return [...document.querySelectorAll('input, textarea, select, button')].filter((one) => one.checkVisibility()).filter((one) => {
      const { width, height } = one.getBoundingClientRect();
      return width < 24 || height < 24;
    }).map(({ id }) => id);
  `);
}
