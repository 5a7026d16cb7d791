/**
 * The account pages work without scripts. This adds what only scripts can do: it opens links whose
 * token stands in the fragment, and shows times in the reader's time zone, buttons that copy and
 * download, and passwords on request.
 */

/** @param {string} words @param {(button: HTMLButtonElement) => unknown} work */
function createButton(words, work) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'small';
  button.textContent = words;
  button.addEventListener('click', () => work(button));
  return button;
}

for (const time of document.querySelectorAll('time')) {
  const local = new Date(time.dateTime);
  time.textContent = local.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

for (const link of document.querySelectorAll('nav a')) {
  if (!(link instanceof HTMLAnchorElement)) continue;
  const { pathname } = location;
  const isPart = pathname.startsWith(`${link.pathname}/`) && link.pathname !== '/account';
  if (pathname === link.pathname || isPart) link.ariaCurrent = 'page';
}

/** Says at a button what it has done. @param {HTMLButtonElement} button @param {string} words */
function showDone(button, words) {
  // A second click within the two seconds must not take the words for the label.
  const label = button.dataset.label ?? button.textContent ?? '';
  button.dataset.label = label;
  button.setAttribute('aria-live', 'polite');
  button.textContent = words;
  setTimeout(() => {
    button.textContent = label;
  }, 2_000);
}

/** The spaces in the key of an app only help to read it. @param {HTMLElement} shown */
const textOf = ({ textContent, localName }) =>
  localName === 'code' ? (textContent ?? '').replaceAll(' ', '') : (textContent ?? '');

/** @param {HTMLElement} shown @param {HTMLButtonElement} button */
async function copy(shown, button) {
  try {
    await navigator.clipboard.writeText(textOf(shown));
    showDone(button, 'Copied');
  } catch {
    // Without HTTPS, or if the browser forbids it.
    getSelection()?.selectAllChildren(shown);
    showDone(button, 'Selected: press Ctrl+C');
  }
}

/** @param {string} text @param {string} name */
function download(text, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([`${text}\n`], { type: 'text/plain' }));
  link.download = name;
  link.click();
  // Not at once: some browsers have not begun to read it.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

for (const shown of document.querySelectorAll('[data-copy]')) {
  if (!(shown instanceof HTMLElement)) continue;
  const { download: name, print: isPrinted, return: address } = shown.dataset;
  const actions = document.createElement('div');
  actions.className = 'actions';
  actions.append(createButton('Copy', (button) => copy(shown, button)));
  if (name !== undefined) {
    actions.append(createButton('Download', () => download(textOf(shown), name)));
  }
  if (isPrinted !== undefined) actions.append(createButton('Print', () => print()));
  shown.after(actions);
  // A reload must not send the form again, which would make another one.
  if (address !== undefined) history.replaceState(null, '', address);
}

const linkForm = document.querySelector('form[data-link]');
// Some mail programs write %23 for the # behind parameters that they add.
const [, linkToken] = /(?:#|%(?:25)*23)(.+)$/.exec(location.href) ?? [];
if (linkForm instanceof HTMLFormElement && linkToken) {
  const token = linkForm.elements.namedItem('token');
  if (token instanceof HTMLInputElement) token.value = linkToken;
  // The token must stay neither in the address nor in the history.
  history.replaceState(null, '', location.pathname);
  linkForm.submit();
}

for (const field of document.querySelectorAll('input[type="password"]')) {
  if (!(field instanceof HTMLInputElement)) continue;
  const wrapper = document.createElement('div');
  wrapper.className = 'joined';
  const hasFocus = document.activeElement === field;
  const label = field.labels?.[0]?.textContent ?? 'password';
  const button = createButton('Show', () => {
    const isHidden = field.type === 'password';
    field.type = isHidden ? 'text' : 'password';
    button.textContent = isHidden ? 'Hide' : 'Show';
    button.setAttribute('aria-label', `${button.textContent}: ${label}`);
  });
  button.setAttribute('aria-label', `Show: ${label}`);
  field.replaceWith(wrapper);
  wrapper.append(field, button);
  if (hasFocus) field.focus();
  // Browsers keep passwords only of fields that are hidden when the form is sent.
  field.form?.addEventListener('submit', () => {
    field.type = 'password';
  });
}

// On a phone, the first entry comes before the filters. With a filter, they stay open.
const filters = document.querySelector('details:has(> form[method="get"])');
if (filters instanceof HTMLDetailsElement && matchMedia('(max-width: 40rem)').matches) {
  filters.open = location.search !== '';
}

// Without scripts, days are those of UTC.
for (const field of document.querySelectorAll('input[type="date"]')) {
  if (!(field instanceof HTMLInputElement)) continue;
  const isEnd = field.name === 'to';
  const given = new URLSearchParams(location.search).get(field.name) ?? '';
  if (given.includes('T')) {
    // Written as a day, such as 2026-02-28.
    field.value = new Date(Date.parse(given) - Number(isEnd)).toLocaleDateString('sv');
  }
  field.form?.addEventListener('formdata', ({ formData }) => {
    if (field.value === '') return;
    const day = new Date(`${field.value}T00:00`);
    if (isEnd) day.setDate(day.getDate() + 1);
    formData.set(field.name, day.toISOString());
  });
}
for (const zone of document.querySelectorAll('.zone')) zone.remove();

// Browsers do not send what follows "#" in the address that was asked for, and keep it.
const fragment = location.hash.replaceAll('\\', '%5C');
for (const field of document.querySelectorAll('input[name="return_to"]')) {
  if (!(field instanceof HTMLInputElement) || field.value === '' || fragment === '') continue;
  field.value = field.value.replace(/#.*/, '') + fragment;
}
const next = document.querySelector('a[data-continue]');
if (next instanceof HTMLAnchorElement) {
  if (fragment !== '') next.hash = fragment;
  location.replace(next.href);
}

/** The form that was sent last, until its answer is shown. Secrets are not kept. */
const SENT = 'gatehouse-sent';
const isSignIn = location.pathname.startsWith('/login');
/** @typedef {{ action: string, fields: string[][], isSignedIn: boolean }} SentForm */

/** @param {HTMLFormElement} form */
function keep(form) {
  const data = new FormData(form);
  const secrets = '[type="password"], [autocomplete="one-time-code"]';
  for (const field of form.querySelectorAll(secrets)) data.delete(field.getAttribute('name') ?? '');
  const fields = [...data];
  const sent = { action: form.action, fields, isSignedIn: false };
  sessionStorage.setItem(SENT, JSON.stringify(sent));
}

/** After so long, a form may be sent again: the user may have stopped the page. */
const REPEAT_MS = 10_000;

for (const form of document.querySelectorAll('form[method="post"]:not(#passkey)')) {
  if (!(form instanceof HTMLFormElement)) continue;
  let sentAt = -Infinity;
  form.addEventListener('submit', (event) => {
    // A second click would send it again, and the answer to the first would be lost.
    if (performance.now() - sentAt < REPEAT_MS) return event.preventDefault();
    sentAt = performance.now();
    const isSignOut = form.getAttribute('action') === '/logout';
    const isLink = form === linkForm;
    if (!isSignIn && !isSignOut && !isLink) keep(form);
  });
  // Back from the next page: the browser shows this one as it was.
  addEventListener('pageshow', () => {
    sentAt = -Infinity;
  });
}

/**
 * Several forms of a page have one address, such as those that remove one factor each. They differ
 * in their hidden fields.
 * @param {HTMLFormElement} form @param {SentForm} sent
 */
function isSameForm(form, { action, fields }) {
  // The search of users has the same address as the form that creates one.
  if (form.method !== 'post' || form.action !== action) return false;
  const sent = new Map(fields.map(([name = '', value = '']) => [name, value]));
  const inputs = [...form.querySelectorAll('input, select')].filter(isField);
  const hidden = inputs.filter(({ type, name }) => type === 'hidden' && name !== 'return_to');
  const names = new Set(inputs.map(({ name }) => name));
  return (
    hidden.every(({ name, value }) => sent.get(name) === value) &&
    [...sent.keys()].every((name) => names.has(name))
  );
}

/** @param {Element} element @returns {element is HTMLInputElement | HTMLSelectElement} */
const isField = (element) =>
  element instanceof HTMLInputElement || element instanceof HTMLSelectElement;

/** A form whose session had ended is filled in again after the sign-in. */
function restoreForm() {
  /** @type {SentForm | null} */
  const sent = JSON.parse(sessionStorage.getItem(SENT) ?? 'null');
  sessionStorage.removeItem(SENT);
  if (sent === null) return;
  if (isSignIn) return sessionStorage.setItem(SENT, JSON.stringify({ ...sent, isSignedIn: true }));
  const form = [...document.forms].find((one) => isSameForm(one, sent));
  if (!sent.isSignedIn || !form) return;
  for (const [name = '', value = ''] of sent.fields) {
    // Not `form.elements.namedItem`, which finds ids as well.
    const field = form.querySelector(`[name="${CSS.escape(name)}"]`);
    if (!field || !isField(field) || field.type === 'hidden') continue;
    if (field instanceof HTMLInputElement && field.type === 'checkbox') field.checked = true;
    else field.value = value;
  }
  const details = form.closest('details');
  if (details) details.open = true;
  form.querySelector('button')?.focus();
}

restoreForm();
