/** The share pages in a real Chromium: for those without a mouse, without eyes for small print, on a phone, at night. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AUTH_TOKEN } from '../../test/support/gatehouse.ts';
import { complaint, focused, make, reveal, startChromium, startService, takePicture, visit, watch } from './house.ts';
import { faintest, overflowing, tooSmall } from './looks.ts';
import { KEYS } from './webdriver.ts';

const service = await startService();
const browser = await startChromium();
watch(browser, service);

const { Tab, Enter, Shift, Space, Down } = KEYS;

/** Where the focus is after each Tab, until it has left the page or is where it began. Everything on the way must show that it has it. */
async function walk(...keys: ReadonlyArray<string | readonly string[]>): Promise<string[]> {
  const stops: string[] = [];
  for (let i = 0; i < 20; i += 1) {
    await browser.press(...keys);
    const stop = await focused(browser);
    if (stop === 'body' || stop === stops[0]) return stops;
    stops.push(stop);
    const outline = await browser.run('const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement); return [outlineStyle, parseFloat(outlineWidth)]');
    assert.ok(outline[0] === 'solid' && outline[1] >= 2, `${stop} shows that it has the focus`);
  }
  throw new Error(`a trap: ${stops.join(', ')}`);
}

const FORM = ['token', 'secret', 'expires-in', 'max-reads', 'passphrase', 'submit'];

test('Tab goes through all of a page in its order, forwards and backwards, and shows where it is', async () => {
  await visit(browser, `${service.url}/`);
  assert.deepEqual(await walk(Tab), FORM);
  assert.deepEqual(await walk([Shift, Tab]), [...FORM].reverse());
  const link = await make(browser, service, 'hush', 'said by phone');
  assert.deepEqual(await walk(Tab), ['link', 'copy', 'again']);
  await visit(browser, link);
  assert.deepEqual(await walk(Tab), ['submit']);
  await browser.click('submit');
  await browser.seen('lock');
  assert.deepEqual(await walk(Tab), ['submit']);
  assert.deepEqual(await walk([Shift, Tab]), ['submit', 'passphrase']);
  await browser.fill('passphrase', 'said by phone');
  await browser.press(Enter);
  await browser.seen('revealed');
  assert.deepEqual(await walk(Tab), ['text', 'copy']);
});

test('a secret is made and revealed with the keyboard alone, and the focus moves to what is new', async () => {
  await visit(browser, `${service.url}/`);
  await browser.press(Tab, ...AUTH_TOKEN, Tab, ...'by keyboard', Enter, ...'in two lines', Tab);
  await browser.press(Down, Tab, [KEYS.Control, 'a'], '3', Tab, ...'said by phone', Tab, Enter);
  await browser.seen('made');
  assert.equal(await focused(browser), 'made-heading');
  assert.match(await browser.text('made'), /It can be read 3 times, until \S/);
  const link = await browser.value('link');
  service.keys.add(new URL(link).hash.slice(1));
  await browser.press(Tab, Tab, Tab, Space);
  await browser.seen('make');
  assert.equal(await focused(browser), 'make-heading');
  await visit(browser, link);
  await browser.press(Tab, Space);
  await browser.seen('lock');
  assert.equal(await focused(browser), 'passphrase');
  await browser.press(...'said by phone', Enter);
  await browser.seen('revealed');
  assert.equal(await focused(browser), 'revealed-heading');
  assert.equal(await browser.value('text'), 'by keyboard\nin two lines');
});

test('a refusal leaves the keyboard where it was, and does not send it back to the top of the page', async () => {
  await visit(browser, `${service.url}/`);
  await browser.press(Tab, ...'wrong', Tab, ...'hush', Tab, Tab, Tab, Tab, Enter);
  await complaint(browser, /access token/);
  await browser.until('document.getElementById("submit").disabled === false');
  assert.equal(await focused(browser), 'submit');
});

/** By page state: how to get there, and what a screen reader calls its controls. */
const STATES: ReadonlyArray<readonly [state: string, go: () => Promise<unknown>, controls: Readonly<Record<string, readonly [role: string, name: string]>>]> = [
  ['make', () => visit(browser, `${service.url}/`), {
    token: ['textbox', 'Access token'], secret: ['textbox', 'Secret'], 'expires-in': ['combobox', 'Gone after'], 'max-reads': ['spinbutton', 'Can be read this many times'],
    passphrase: ['textbox', 'Passphrase (if you want one)'], submit: ['button', 'Make the link'],
  }],
  ['make-refused', async () => {
    await visit(browser, `${service.url}/`);
    await browser.fill('token', 'wrong');
    await browser.press(Tab);
    await complaint(browser, /./);
  }, { token: ['textbox', 'Access token'], problem: ['alert', ''] }],
  ['made', async () => {
    await make(browser, service, 'hush', 'said by phone');
    await browser.click('copy');
    await browser.until('document.getElementById("status").innerText !== ""');
  }, { link: ['textbox', 'Send this to the one it is for'], copy: ['button', 'Copy the link'], again: ['button', 'Make another'] }],
  ['reveal', async () => visit(browser, (await service.keep('hush')).link), { submit: ['button', 'Reveal the secret'] }],
  ['reveal-cut', async () => visit(browser, (await service.keep('hush')).link.slice(0, -1)), { submit: ['button', 'Reveal the secret'], problem: ['alert', ''] }],
  ['reveal-locked', async () => {
    await visit(browser, (await service.keep('hush', { passphrase: 'said by phone' })).link);
    await browser.click('submit');
    await complaint(browser, /locked/);
  }, { passphrase: ['textbox', 'Passphrase'], submit: ['button', 'Reveal the secret'], problem: ['alert', ''] }],
  ['revealed', async () => reveal(browser, (await service.keep(`a long line: ${'x'.repeat(200)}\nand a short one`)).link), {
    text: ['textbox', 'Secret'], copy: ['button', 'Copy the secret'],
  }],
  ['reveal-gone', async () => {
    const { id, link } = await service.keep('hush');
    await service.remove(id);
    await visit(browser, link);
    await browser.click('submit');
    await complaint(browser, /opens nothing/);
  }, { submit: ['button', 'Reveal the secret'], problem: ['alert', ''] }],
];

const SIZES = {
  desk: { width: 1_280, height: 900, deviceScaleFactor: 1, mobile: false },
  phone: { width: 320, height: 640, deviceScaleFactor: 2, mobile: true },
} as const;
const size = (name: keyof typeof SIZES) => browser.chromium('Emulation.setDeviceMetricsOverride', SIZES[name]);
const colours = (scheme: 'light' | 'dark') => browser.chromium('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });

for (const [state, go, controls] of STATES) {
  test(`the page can be read by everybody: ${state}`, async () => {
    await size('desk');
    await colours('light');
    await go();
    // What a screen reader has to go by.
    assert.equal(await browser.run('return document.documentElement.lang'), 'en');
    assert.notEqual(await browser.title(), '');
    assert.equal(await browser.run('return [...document.querySelectorAll("h1")].filter((one) => one.checkVisibility()).length'), 1, 'one heading');
    assert.equal(await browser.run('return document.querySelectorAll("main").length'), 1);
    for (const [id, expected] of Object.entries(controls)) assert.deepEqual([await browser.roleOf(id), await browser.nameOf(id)], expected, id);
    const shown: string[] = await browser.run('return [...document.querySelectorAll("input, textarea, select, button")].filter((one) => one.checkVisibility()).map(({ id }) => id)');
    for (const id of shown) assert.notEqual(await browser.nameOf(id), '', id);
    for (const picture of await browser.run('return [...document.querySelectorAll("svg")].map((one) => one.getAttribute("aria-label"))')) assert.equal(picture, 'The link as a QR code');

    for (const scheme of ['light', 'dark'] as const) {
      await colours(scheme);
      const { texts, lines } = await faintest(browser);
      // WCAG 2.2: 1.4.3 and 1.4.11.
      assert.ok(texts.ratio >= 4.5, `${scheme}: ${texts.what} has ${texts.ratio}:1`);
      assert.ok(lines.ratio >= 3, `${scheme}: ${lines.what} has ${lines.ratio}:1`);
      for (const name of scheme === 'light' ? (['phone', 'desk'] as const) : (['phone'] as const)) {
        await size(name);
        assert.deepEqual(await overflowing(browser), [], `${name}: nothing sticks out`);
        assert.deepEqual(await tooSmall(browser), [], `${name}: everything can be touched`);
      }
      await takePicture(browser, `${state}-${scheme}-${scheme === 'light' ? 'desk' : 'phone'}`);
    }
    // WCAG 2.2, 1.4.4: letters of twice the size.
    await size('desk');
    await browser.run('document.documentElement.style.fontSize = "200%"');
    assert.deepEqual(await overflowing(browser), [], 'nothing sticks out at twice the size');
  });
}

test('letters of twice the size fit on a phone as well', async () => {
  await size('phone');
  await colours('light');
  const trouble = [];
  for (const [state, go] of STATES) {
    await go();
    await browser.run('document.documentElement.style.fontSize = "200%"');
    trouble.push(...(await overflowing(browser)).map((what) => `${state}: ${what}`));
    await takePicture(browser, `${state}-large-phone`);
  }
  assert.deepEqual(trouble, []);
});

test('the measure of contrast would notice', async () => {
  await colours('light');
  await STATES[0]?.[1]();
  await browser.run('document.getElementById("token-hint").style.color = "#8a8a8a"');
  const { texts } = await faintest(browser);
  assert.deepEqual([texts.what, Math.round(texts.ratio * 100) / 100], ['p#token-hint', 3.45]);
  await browser.run('document.getElementById("token").style.width = "2000px"');
  assert.notDeepEqual(await overflowing(browser), []);
});
