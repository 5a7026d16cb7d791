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
 * @typedef {{ ok: true, data: Data } | { ok: false, code: string, message: string }} Result `message` is for the user.
 */

/**
 * Calls the service's API.
 * @template Data the reply of this route
 * @param {string} path
 * @param {{ token?: string, body?: object, method?: string }} request
 * @returns {Promise<Result<Data>>}
 */
export async function callApi(path, { token, body, method = body ? 'POST' : 'GET' }) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }),
        ...(body ? { 'Content-Type': 'application/json' } : {}),
      },
      ...(body ? { body: JSON.stringify(body) } : {}),
      cache: 'no-store',
      credentials: 'omit',
    });
  } catch {
    return { ok: false, code: 'no_answer', message: 'The service did not answer. Check the connection and try again.' };
  }
  const reply = await response.json().catch(() => null);
  if (response.ok && reply !== null) return { ok: true, data: reply };
  const unexpected = 'The service sent an unexpected reply. Try again soon.';
  const { code = 'no_answer', message = unexpected, fields = [] } = reply?.error ?? {};
  if (code === 'too_many_requests') {
    const minutes = Math.ceil(Number(response.headers.get('Retry-After')) / 60);
    const wait = `${minutes} minute${minutes === 1 ? '' : 's'}`;
    return { ok: false, code, message: `Too many failed attempts. Try again in ${wait}.` };
  }
  return { ok: false, code, message: fields.length > 0 ? fields.map(fieldMessage).join(' ') : message };
}

/** The names of request members that the user knows by another name. @type {Record<string, string>} */
const FIELD_NAMES = {
  '/password': 'The secret',
  '/expires_in': 'The expiry time in seconds',
  '/max_reads': 'The maximum number of reads',
  '/passphrase': 'The passphrase',
};

/** @param {{ path: string, message: string }} error */
const fieldMessage = ({ path, message }) => `${FIELD_NAMES[path] ?? path} ${message}.`;

/** Shows an error message; screen readers announce it. @param {string} message the empty string to remove it */
export function showProblem(message) {
  const problem = element('problem', HTMLElement);
  problem.textContent = message;
  problem.hidden = message === '';
  if (message !== '') problem.scrollIntoView({ block: 'nearest' });
}

/**
 * Makes a button copy the text of a field.
 * @param {HTMLButtonElement} button
 * @param {HTMLInputElement | HTMLTextAreaElement} field
 * @param {() => string} text the exact text; the field may have changed its line endings
 */
export function copyOnClick(button, field, text) {
  button.addEventListener('click', async () => {
    const status = element('status', HTMLElement);
    field.select();
    try {
      await navigator.clipboard.writeText(text());
      status.textContent = 'Copied.';
    } catch {
      // Without HTTPS, or if the browser forbids it.
      status.textContent = 'The text is selected. To copy it, press Ctrl+C or touch and hold it.';
    }
  });
}

/** Hides one section, shows another and moves the focus to its heading. @param {string} from @param {string} to */
export function switchSection(from, to) {
  showProblem('');
  element('status', HTMLElement).textContent = '';
  element(from, HTMLElement).hidden = true;
  element(to, HTMLElement).hidden = false;
  element(`${to}-heading`, HTMLElement).focus();
}
