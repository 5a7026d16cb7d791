/**
 * Accessibility of the share pages in a real Chromium: keyboard, screen reader, contrast, small
 * screens.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AUTH_TOKEN } from '../../support/gatehouse.ts';
import { startBrowser } from './browsers.ts';
import {
  assertFocusVisible,
  checkAppearance,
  enlargeText,
  lowestContrast,
  openState,
  overflowing,
  type PageState,
  setViewport,
} from './accessibility.ts';
import {
  checkAfterEach,
  createLink,
  focused,
  noteKeys,
  openLink,
  openPage,
  reveal,
  saveScreenshot,
  startService,
  untilEnded,
  untilProblem,
} from './setup.ts';
import { KEYS } from './webdriver.ts';
import { wordsOf } from '../../support/words.ts';

const service = await startService({
  SITE_NAME: 'Example Ltd',
  SITE_FOOTER: 'Imprint: https://example.org/imprint',
});
const browser = await startBrowser();
checkAfterEach(browser, service);

const { Tab, Enter, Shift, Down } = KEYS;
/** Follows the link to the content, past the navigation. */
const SKIP = [Tab, Enter] as const;

/** The ids that get the focus with each press, until it leaves the page or returns to the first. */
async function focusOrder(...keys: ReadonlyArray<string | readonly string[]>): Promise<string[]> {
  const stops: string[] = [];
  // Firefox has moved the focus to its own window when the last element was left.
  await browser.run('window.focus()');
  for (let i = 0; i < 20; i += 1) {
    await browser.press(...keys);
    const stop = await focused(browser);
    if (stop === 'body' || stop === stops[0]) return stops;
    // The link of the footer has no id.
    if (stop === '') continue;
    stops.push(stop);
    await assertFocusVisible(browser, stop);
  }
  throw new Error(`keyboard trap: ${stops.join(', ')}`);
}

// Tab reaches the chosen one of the radio buttons; arrow keys choose another.
const FORM = wordsOf(`
  token kind-text secret generate expires-in max-reads passphrase suggest end-to-end submit
`);

test('Tab visits every control in order, in both directions, with a visible focus', async () => {
  await openPage(browser, `${service.url}/`);
  assert.deepEqual(await focusOrder(Tab), FORM);
  assert.deepEqual(await focusOrder([Shift, Tab]), [...FORM].reverse());
  const link = await createLink(browser, service, 'confidential', 'said by phone');
  const made = wordsOf(`
    link copy made-passphrase copy-passphrase receipt copy-receipt open-receipt again
  `);
  assert.deepEqual(
    (await focusOrder(Tab)).filter((id) => id !== 'share'),
    made,
  );
  const receipt = await browser.value('receipt');
  noteKeys(service, receipt);
  await openPage(browser, receipt);
  await browser.untilVisible('burn');
  assert.deepEqual(await focusOrder(Tab), ['address', 'copy', 'delete']);
  await openLink(browser, link);
  assert.deepEqual(await focusOrder(Tab), ['passphrase', 'submit']);
  await browser.fill('passphrase', 'said by phone');
  await browser.press(Enter);
  await browser.untilVisible('revealed');
  assert.deepEqual(await focusOrder(Tab), ['text', 'copy', 'save']);
});

test('the keyboard alone stores and reveals a secret, and the focus follows', async () => {
  await openPage(browser, `${service.url}/`);
  await browser.press(
    ...SKIP,
    Tab,
    ...AUTH_TOKEN,
    Tab,
    Tab,
    ...'by keyboard',
    Enter,
    ...'in two lines',
    Tab,
    Tab,
  );
  await browser.press(
    Down,
    Tab,
    [KEYS.Control, 'a'],
    '3',
    Tab,
    ...'said by phone',
    Tab,
    Tab,
    Tab,
    Enter,
  );
  await browser.untilVisible('made');
  assert.equal(await focused(browser), 'made-heading');
  assert.match(await browser.text('made'), /It can be opened 3 times, until \S/);
  const link = await browser.value('link');
  noteKeys(service, link, await browser.value('receipt'));
  await browser.press([Shift, Tab]);
  await openLink(browser, link);
  await browser.press(Tab, Tab, ...'said by phone', Enter);
  await browser.untilVisible('revealed');
  assert.equal(await focused(browser), 'revealed-heading');
  assert.equal(await browser.value('text'), 'by keyboard\nin two lines');
});

test('the focus moves to the field with an error', async () => {
  await openPage(browser, `${service.url}/`);
  await browser.press(...SKIP, Tab, ...'wrong', Tab, Tab, ...'confidential');
  await untilProblem(browser, /access token/);
  assert.equal(await browser.value('secret'), 'confidential');
  assert.equal(await focused(browser), 'secret', 'not while the user is typing');
  await browser.click('submit');
  await browser.until('document.activeElement.id === "token"');
});

const FORM_STATE: PageState = [
  'make',
  () => openPage(browser, `${service.url}/`),
  {
    token: ['textbox', 'Access token'],
    'kind-text': ['radio', 'Text'],
    'kind-file': ['radio', 'File'],
    secret: ['textbox', 'Secret'],
    generate: ['button', 'Generate a password'],
    'expires-in': ['combobox', 'Expires after'],
    'max-reads': ['spinbutton', 'Views'],
    passphrase: ['textbox', 'Passphrase (optional)'],
    suggest: ['button', 'Generate a passphrase'],
    'end-to-end': ['checkbox', 'Encrypt end to end'],
    submit: ['button', 'Create link'],
  },
];

async function openReceipt(): Promise<void> {
  await createLink(browser, service, 'confidential');
  const receipt = await browser.value('receipt');
  noteKeys(service, receipt);
  await openPage(browser, receipt);
  await browser.untilVisible('burn');
}

const STATES: readonly PageState[] = [
  FORM_STATE,
  [
    'make-file',
    async () => {
      await FORM_STATE[1]();
      await browser.click('kind-file');
      await browser.untilVisible('file');
    },
    { submit: ['button', 'Create link'] },
  ],
  [
    'make-refused',
    async () => {
      await FORM_STATE[1]();
      await browser.fill('token', 'wrong');
      await browser.press(Tab);
      await untilProblem(browser, /./);
    },
    { token: ['textbox', 'Access token'], 'token-error': ['alert', ''] },
  ],
  [
    'made',
    async () => {
      await createLink(browser, service, 'confidential', 'said by phone');
      await browser.run('document.getElementById("code").open = true');
      await browser.click('copy');
      await browser.until('document.getElementById("copy").innerText !== "Copy link"');
    },
    {
      link: ['textbox', 'Link for the recipient'],
      'made-passphrase': ['textbox', 'Passphrase for the recipient'],
      receipt: ['textbox', 'Shows whether the link was opened, and can delete it'],
      'open-receipt': ['link', 'Open receipt'],
      again: ['button', 'Create another link'],
    },
  ],
  ['receipt', openReceipt, { delete: ['button', 'Delete now'] }],
  [
    'receipt-delete',
    async () => {
      await openReceipt();
      await browser.click('delete');
      await browser.untilVisible('sure');
    },
    { confirm: ['button', 'Yes, delete it'], cancel: ['button', 'Keep it'] },
  ],
  [
    'receipt-unknown',
    async () => {
      await openPage(
        browser,
        `${service.url}/r/00000000-0000-4000-8000-000000000000#${'A'.repeat(43)}`,
      );
      await browser.until('document.title.startsWith("No such receipt ·")');
    },
    { 'receipt-heading': ['heading', 'No such receipt'] },
  ],
  [
    'reveal',
    async () => openLink(browser, (await service.store('confidential')).link),
    {
      submit: ['button', 'Open'],
    },
  ],
  [
    'reveal-locked',
    async () => {
      await openLink(
        browser,
        (await service.store('confidential', { passphrase: 'said by phone' })).link,
      );
      await browser.fill('passphrase', 'wrong');
      await browser.click('submit');
      await untilProblem(browser, /wrong/);
    },
    {
      passphrase: ['textbox', 'Passphrase'],
      submit: ['button', 'Open'],
      'passphrase-error': ['alert', ''],
    },
  ],
  [
    'revealed',
    async () => {
      const { link } = await service.store(`a long line: ${'x'.repeat(200)}\nand a short one`);
      await reveal(browser, link);
    },
    {
      text: ['textbox', 'Secret'],
      copy: ['button', 'Copy secret'],
      delete: ['button', 'Delete now'],
    },
  ],
  [
    'ended-cut',
    async () => {
      await openPage(browser, (await service.store('confidential')).link.slice(0, -1));
      await untilEnded(browser, /wrong/);
    },
    { 'ended-heading': ['heading', 'This link is incomplete or wrong'] },
  ],
  [
    'ended-deleted',
    async () => {
      const { id, link } = await service.store('confidential');
      await service.remove(id);
      await openPage(browser, link);
      await untilEnded(browser, /deleted/);
    },
    { 'ended-heading': ['heading', 'This secret was deleted'] },
  ],
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
      'return [...document.querySelectorAll("svg")].map((one) => one.getAttribute("aria-label"))',
    );
    for (const label of images) assert.equal(label, 'The link as a QR code');
    await checkAppearance(browser, name);
    // WCAG 2.2, 1.4.4.
    await setViewport(browser, 'desktop');
    await enlargeText(browser);
    assert.deepEqual(await overflowing(browser), [], 'nothing overflows at twice the text size');
  });
}

test('text of twice the size fits on a phone', async () => {
  await setViewport(browser, 'phone');
  await browser.setColorScheme('light');
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
  await browser.setColorScheme('light');
  await FORM_STATE[1]();
  await browser.run('document.getElementById("token-hint").style.color = "#8a8a8a"');
  const { text } = await lowestContrast(browser);
  assert.deepEqual([text.element, Math.round(text.ratio * 100) / 100], ['p#token-hint', 3.45]);
  await browser.run('document.getElementById("token").style.width = "2000px"');
  assert.notDeepEqual(await overflowing(browser), []);
});
