/** Accessibility of the share pages in a real Chromium: keyboard, screen reader, contrast, small screens. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AUTH_TOKEN } from '../../test/support/gatehouse.ts';
import {
  assertFocusVisible, checkAppearance, enlargeText, lowestContrast, openState, overflowing, type PageState,
  setColorScheme, setViewport,
} from './accessibility.ts';
import {
  checkAfterEach, createLink, focused, openPage, reveal, saveScreenshot, startChromium, startService, untilProblem,
} from './setup.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const browser = await startChromium();
checkAfterEach(browser, service);

const { Tab, Enter, Shift, Space, Down } = KEYS;

/** The ids that get the focus with each press, until it leaves the page or returns to the first. */
async function focusOrder(...keys: ReadonlyArray<string | readonly string[]>): Promise<string[]> {
  const stops: string[] = [];
  for (let i = 0; i < 20; i += 1) {
    await browser.press(...keys);
    const stop = await focused(browser);
    if (stop === 'body' || stop === stops[0]) return stops;
    stops.push(stop);
    await assertFocusVisible(browser, stop);
  }
  throw new Error(`keyboard trap: ${stops.join(', ')}`);
}

const FORM = ['token', 'secret', 'expires-in', 'max-reads', 'passphrase', 'submit'];

test('Tab visits every control in order, in both directions, with a visible focus', async () => {
  await openPage(browser, `${service.url}/`);
  assert.deepEqual(await focusOrder(Tab), FORM);
  assert.deepEqual(await focusOrder([Shift, Tab]), [...FORM].reverse());
  const link = await createLink(browser, service, 'confidential', 'said by phone');
  assert.deepEqual(await focusOrder(Tab), ['link', 'copy', 'again']);
  await openPage(browser, link);
  assert.deepEqual(await focusOrder(Tab), ['submit']);
  await browser.click('submit');
  await browser.untilVisible('lock');
  assert.deepEqual(await focusOrder(Tab), ['submit']);
  assert.deepEqual(await focusOrder([Shift, Tab]), ['submit', 'passphrase']);
  await browser.fill('passphrase', 'said by phone');
  await browser.press(Enter);
  await browser.untilVisible('revealed');
  assert.deepEqual(await focusOrder(Tab), ['text', 'copy']);
});

test('the keyboard alone stores and reveals a secret, and the focus follows', async () => {
  await openPage(browser, `${service.url}/`);
  await browser.press(Tab, ...AUTH_TOKEN, Tab, ...'by keyboard', Enter, ...'in two lines', Tab);
  await browser.press(Down, Tab, [KEYS.Control, 'a'], '3', Tab, ...'said by phone', Tab, Enter);
  await browser.untilVisible('made');
  assert.equal(await focused(browser), 'made-heading');
  assert.match(await browser.text('made'), /The secret can be read 3 times, until \S/);
  const link = await browser.value('link');
  service.keys.add(new URL(link).hash.slice(1));
  await browser.press(Tab, Tab, Tab, Space);
  await browser.untilVisible('make');
  assert.equal(await focused(browser), 'make-heading');
  await openPage(browser, link);
  await browser.press(Tab, Space);
  await browser.untilVisible('lock');
  assert.equal(await focused(browser), 'passphrase');
  await browser.press(...'said by phone', Enter);
  await browser.untilVisible('revealed');
  assert.equal(await focused(browser), 'revealed-heading');
  assert.equal(await browser.value('text'), 'by keyboard\nin two lines');
});

test('the focus stays on the button after an error', async () => {
  await openPage(browser, `${service.url}/`);
  await browser.press(Tab, ...'wrong', Tab, ...'confidential', Tab, Tab, Tab, Tab, Enter);
  await untilProblem(browser, /access token/);
  await browser.until('document.getElementById("submit").disabled === false');
  assert.equal(await focused(browser), 'submit');
});

const FORM_STATE: PageState = ['make', () => openPage(browser, `${service.url}/`), {
  token: ['textbox', 'Access token'], secret: ['textbox', 'Secret'], 'expires-in': ['combobox', 'Expires after'],
  'max-reads': ['spinbutton', 'Maximum number of reads'],
  passphrase: ['textbox', 'Passphrase (optional)'], submit: ['button', 'Create link'],
}];

const STATES: readonly PageState[] = [
  FORM_STATE,
  ['make-refused', async () => {
    await openPage(browser, `${service.url}/`);
    await browser.fill('token', 'wrong');
    await browser.press(Tab);
    await untilProblem(browser, /./);
  }, { token: ['textbox', 'Access token'], problem: ['alert', ''] }],
  ['made', async () => {
    await createLink(browser, service, 'confidential', 'said by phone');
    await browser.click('copy');
    await browser.until('document.getElementById("status").innerText !== ""');
  }, {
    link: ['textbox', 'Send this link to the recipient'], copy: ['button', 'Copy link'],
    again: ['button', 'Create another link'],
  }],
  ['reveal', async () => openPage(browser, (await service.store('confidential')).link), {
    submit: ['button', 'Reveal secret'],
  }],
  ['reveal-cut', async () => openPage(browser, (await service.store('confidential')).link.slice(0, -1)), {
    submit: ['button', 'Reveal secret'], problem: ['alert', ''],
  }],
  ['reveal-locked', async () => {
    await openPage(browser, (await service.store('confidential', { passphrase: 'said by phone' })).link);
    await browser.click('submit');
    await untilProblem(browser, /protected by a passphrase/);
  }, { passphrase: ['textbox', 'Passphrase'], submit: ['button', 'Reveal secret'], problem: ['alert', ''] }],
  ['revealed', async () => {
    const { link } = await service.store(`a long line: ${'x'.repeat(200)}\nand a short one`);
    await reveal(browser, link);
  }, { text: ['textbox', 'Secret'], copy: ['button', 'Copy secret'] }],
  ['reveal-gone', async () => {
    const { id, link } = await service.store('confidential');
    await service.remove(id);
    await openPage(browser, link);
    await browser.click('submit');
    await untilProblem(browser, /no longer works/);
  }, { submit: ['button', 'Reveal secret'], problem: ['alert', ''] }],
];

for (const state of STATES) {
  const [name] = state;
  test(`page state ${name}: screen reader, contrast, target size and reflow`, async () => {
    await openState(browser, state);
    assert.equal(await browser.run('return document.documentElement.lang'), 'en');
    assert.notEqual(await browser.title(), '');
    assert.equal(await browser.run('return document.querySelectorAll("main").length'), 1);
    const visible: string[] = await browser.run(`
      const controls = [...document.querySelectorAll('input, textarea, select, button')];
      return controls.filter((one) => one.checkVisibility()).map(({ id }) => id);`);
    for (const id of visible) assert.notEqual(await browser.nameOf(id), '', id);
    const images: string[] = await browser.run(
      'return [...document.querySelectorAll("svg")].map((one) => one.getAttribute("aria-label"))');
    for (const label of images) assert.equal(label, 'The link as a QR code');
    await checkAppearance(browser, name, (scheme) => (scheme === 'light' ? ['phone', 'desktop'] : ['phone']));
    // WCAG 2.2, 1.4.4.
    await setViewport(browser, 'desktop');
    await enlargeText(browser);
    assert.deepEqual(await overflowing(browser), [], 'nothing overflows at twice the text size');
  });
}

test('text of twice the size fits on a phone', async () => {
  await setViewport(browser, 'phone');
  await setColorScheme(browser, 'light');
  const found = [];
  for (const [name, open] of STATES) {
    await open();
    await enlargeText(browser);
    found.push(...(await overflowing(browser)).map((element) => `${name}: ${element}`));
    await saveScreenshot(browser, `${name}-large-phone`);
  }
  assert.deepEqual(found, []);
});

test('the checks detect a low contrast and an overflow', async () => {
  await setColorScheme(browser, 'light');
  await FORM_STATE[1]();
  await browser.run('document.getElementById("token-hint").style.color = "#8a8a8a"');
  const { text } = await lowestContrast(browser);
  assert.deepEqual([text.element, Math.round(text.ratio * 100) / 100], ['p#token-hint', 3.45]);
  await browser.run('document.getElementById("token").style.width = "2000px"');
  assert.notDeepEqual(await overflowing(browser), []);
});
