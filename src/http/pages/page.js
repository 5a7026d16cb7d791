/** What all pages share. Texts get onto a page as text only, never as markup. */

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
 * @typedef {{ ok: true, data: Data } | { ok: false, code: string, words: string }} Answer `words` for the person on the page
 */

/**
 * Asks the service.
 * @template Data as the row of this path replies
 * @param {string} path
 * @param {{ token?: string, body?: object, method?: string }} request
 * @returns {Promise<Answer<Data>>}
 */
export async function ask(path, { token, body, method = body ? 'POST' : 'GET' }) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }), ...(body ? { 'Content-Type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
      cache: 'no-store',
      credentials: 'omit',
    });
  } catch {
    return { ok: false, code: 'no_answer', words: 'The service did not answer. Check the connection and try again.' };
  }
  const reply = await response.json().catch(() => null);
  if (response.ok && reply !== null) return { ok: true, data: reply };
  const { code = 'no_answer', message = 'The service did not answer as it should. Try again shortly.', fields = [] } = reply?.error ?? {};
  const minutes = Math.ceil(Number(response.headers.get('Retry-After')) / 60);
  if (code === 'too_many_requests') return { ok: false, code, words: `Too many attempts have failed. Try again in ${minutes} minute${minutes === 1 ? '' : 's'}.` };
  return { ok: false, code, words: fields.length > 0 ? fields.map(faultWords).join(' ') : message };
}

/** @param {{ path: string, message: string }} fault */
const faultWords = ({ path, message }) => {
  const names = { '/password': 'The secret', '/expires_in': 'The expiry in seconds', '/max_reads': 'The number of reads', '/passphrase': 'The passphrase' };
  return `${Object.entries(names).find(([name]) => name === path)?.[1] ?? path} ${message}.`;
};

/** Says what is wrong, to eyes and screen readers. @param {string} words the empty text to take it back */
export function complain(words) {
  const problem = element('problem', HTMLElement);
  problem.textContent = words;
  problem.hidden = words === '';
  if (words !== '') problem.scrollIntoView({ block: 'nearest' });
}

/**
 * A button that copies what a field shows.
 * @param {HTMLButtonElement} button
 * @param {HTMLInputElement | HTMLTextAreaElement} field
 * @param {() => string} text exactly; a field may have changed the ends of its lines
 */
export function copies(button, field, text) {
  button.addEventListener('click', async () => {
    const status = element('status', HTMLElement);
    field.select();
    try {
      await navigator.clipboard.writeText(text());
      status.textContent = 'Copied.';
    } catch {
      // Without HTTPS, or where the browser forbids it.
      status.textContent = 'Selected. Copy it with Ctrl+C, or by a long press.';
    }
  });
}

/** Shows a part of the page in the place of another, and leads keyboard and screen reader there. @param {string} from @param {string} to */
export function turnTo(from, to) {
  complain('');
  element('status', HTMLElement).textContent = '';
  element(from, HTMLElement).hidden = true;
  element(to, HTMLElement).hidden = false;
  element(`${to}-heading`, HTMLElement).focus();
}
