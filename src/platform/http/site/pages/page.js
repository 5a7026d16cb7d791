/** What all pages share. Values are put into a page as text, never as markup. */

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`internal error: the page has no ${id}`);
  return found;
}

/**
 * @template Data
 * @typedef {{ ok: true, data: Data, headers: Headers } | Failure} Result
 */
/**
 * `message` is for the user.
 * @typedef {{ ok: false, code: string, message: string, fields: Array<{ path: string, message:
 * string }> }} Failure
 */

/**
 * @param {string} code
 * @param {string} message
 * @param {Failure['fields']} fields
 * @returns {Failure}
 */
const failure = (code, message, fields = []) => ({ ok: false, code, message, fields });

// The links of the site may lead to a page that the navigation has already.
const addresses = new Set();
for (const link of document.querySelectorAll('nav > a')) {
  if (!(link instanceof HTMLAnchorElement)) continue;
  if (addresses.has(link.href)) link.remove();
  addresses.add(link.href);
}

export const UNEXPECTED = 'The service sent an unexpected reply. Try again soon.';

/**
 * Calls the service's API.
 * @template Data the reply of this route
 * @param {string} path
 * @param {{ token?: string, linkKey?: string, body?: object, method?: string }} request
 * @returns {Promise<Result<Data>>}
 */
export async function callApi(path, { token, linkKey, body, method = body ? 'POST' : 'GET' }) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
        ...(body ? { 'Content-Type': 'application/json' } : {}),
        ...(linkKey === undefined ? {} : { 'X-Link-Key': linkKey }),
      },
      ...(body ? { body: JSON.stringify(body) } : {}),
      cache: 'no-store',
      // For a proxy that authenticates users. A redirect leads to its sign-in page.
      credentials: 'same-origin',
      redirect: 'manual',
    });
  } catch {
    return failure('no_answer', 'The service did not answer. Check the connection and try again.');
  }
  const reply = await response.json().catch(() => null);
  if (response.status === 401 && !token) offerSignIn(response.headers.get('Location'));
  // Without a token, it was a proxy that had signed the user in.
  if (response.type === 'opaqueredirect' || (response.status === 401 && !token)) {
    return failure(
      'unauthorized',
      'Your sign-in has ended. Sign in again in another tab, then try again here.',
    );
  }
  if (response.ok && reply !== null) return { ok: true, data: reply, headers: response.headers };
  const { code = 'no_answer', message = UNEXPECTED, fields = [] } = reply?.error ?? {};
  if (code === 'too_many_requests') {
    const minutes = Math.ceil(Number(response.headers.get('Retry-After')) / 60);
    const wait = `${minutes} minute${minutes === 1 ? '' : 's'}`;
    return failure(code, `Too many attempts. Try again in ${wait}.`);
  }
  return failure(code, fields.length > 0 ? fields.map(fieldMessage).join(' ') : message, fields);
}

/**
 * Leads to the sign-in page, and from there back here.
 * @param {string | null} address
 */
export function offerSignIn(address) {
  const link = document.getElementById('sign-in');
  if (address === null || !(link instanceof HTMLAnchorElement)) return;
  const page = new URL(address);
  page.searchParams.set('return_to', location.href);
  link.href = page.href;
  link.hidden = false;
  // One main action: a form that is sent now fails.
  link.closest('form')?.querySelector('button.primary')?.classList.remove('primary');
}

/** Names the tab, and the site after it. @param {string} title */
export function showTitle(title) {
  document.title = `${title} · ${document.querySelector('.brand')?.textContent}`;
}

/** Shows in the header who is signed in. @param {string | null} name */
export function showPerson(name) {
  const person = element('person', HTMLElement);
  person.textContent = name;
  person.hidden = name === null;
}

/**
 * The names of request members that the user knows by another name. @type {Record<string, string>}
 */
const FIELD_NAMES = {
  '/password': 'The secret',
  '/expires_in': 'The expiry time in seconds',
  '/max_reads': 'The number of views',
  '/passphrase': 'The passphrase',
};

/** @param {{ path: string, message: string }} error */
const fieldMessage = ({ path, message }) => `${FIELD_NAMES[path] ?? path} ${message}.`;

/**
 * Shows an error message; screen readers announce it.
 * @param {string} message the empty string to remove it
 */
export function showProblem(message) {
  const problem = element('problem', HTMLElement);
  problem.textContent = message;
  problem.hidden = message === '';
  if (message !== '') problem.scrollIntoView({ block: 'nearest' });
}

/**
 * Shows an error message below a control, for screen readers as well.
 * @param {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} control
 * @param {string} message the empty string to remove it
 * @param {boolean} takesFocus false while the user may be typing elsewhere
 */
export function showFieldProblem(control, message, takesFocus = true) {
  const id = `${control.id}-error`;
  let note = document.getElementById(id);
  if (!note && message !== '') {
    note = document.createElement('p');
    note.id = id;
    note.className = 'error';
    note.setAttribute('role', 'alert');
    const hints = control.getAttribute('aria-describedby') ?? '';
    control.setAttribute('aria-describedby', `${id} ${hints}`.trim());
    (control.closest('.joined') ?? control).after(note);
  }
  if (!note) return;
  note.textContent = message;
  note.hidden = message === '';
  if (message === '') return control.removeAttribute('aria-invalid');
  control.setAttribute('aria-invalid', 'true');
  if (takesFocus) control.focus();
}

/**
 * Says at a button what it has done, for two seconds.
 * @param {HTMLButtonElement} button @param {string} words @param {boolean} isDone
 */
export function showAtButton(button, words, isDone) {
  button.dataset.label ??= button.textContent ?? '';
  const { label } = button.dataset;
  button.textContent = words;
  button.classList.toggle('done', isDone);
  element('status', HTMLElement).textContent = words;
  setTimeout(() => {
    button.textContent = label;
    button.classList.remove('done');
  }, 2_000);
}

/**
 * Makes a button copy the text of a field.
 * @param {HTMLButtonElement} button
 * @param {HTMLInputElement | HTMLTextAreaElement} field
 * @param {() => string} text the exact text; the field may have changed its line endings
 */
export function copyOnClick(button, field, text) {
  button.addEventListener('click', async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(text());
      showAtButton(button, 'Copied', true);
    } catch {
      // Without HTTPS, or if the browser forbids it.
      showAtButton(button, 'Selected: press Ctrl+C', false);
    }
  });
}

/**
 * Runs work once at a time, and shows that it runs. The button is not disabled, because it would
 * lose the focus.
 * @param {HTMLButtonElement} button
 * @param {() => Promise<unknown>} work
 */
export async function whileBusy(button, work) {
  if (button.ariaBusy === 'true') return;
  button.ariaBusy = 'true';
  try {
    await work();
  } finally {
    button.ariaBusy = null;
  }
}

/** @param {string | null} time @returns a date and time in the language of the browser */
export const formatTime = (time) =>
  time === null
    ? ''
    : new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });

/**
 * Hides one section, shows another and moves the focus to its heading.
 * @param {string} from
 * @param {string} to
 */
export function switchSection(from, to) {
  showProblem('');
  element('status', HTMLElement).textContent = '';
  element(from, HTMLElement).hidden = true;
  element(to, HTMLElement).hidden = false;
  element(`${to}-heading`, HTMLElement).focus();
}

/**
 * Repeats work while the page is shown.
 * @param {() => Promise<boolean>} work false if it must not be repeated
 * @param {number} pause in milliseconds
 */
export async function repeatWhileShown(work, pause) {
  if (!(await work())) return;
  const again = () => {
    if (document.hidden) document.addEventListener('visibilitychange', again, { once: true });
    else void repeatWhileShown(work, pause);
  };
  setTimeout(again, pause);
}
