/** Requests to the service as the operator, and what both views share. */
import { callApi, element, showFieldProblem } from '/pages/page.js';

/** @import { Result } from '/pages/page.js' */

/** The token is kept only in this field. */
const token = element('token', HTMLInputElement);

/** Called when the service does not accept the token, or not any more. */
export const signedOut = { handle: (/** @type {string} */ _message) => {} };

/** The token that was rejected last: requests that run at once are rejected one after the other. */
let rejected = '';

/**
 * @template Data
 * @param {string} path
 * @param {{ method?: string, body?: object }} [request]
 * @returns {Promise<Result<Data>>}
 */
export async function call(path, request = {}) {
  const sent = token.value;
  /** @type {Result<Data>} */
  const result = await callApi(path, { ...request, ...(sent === '' ? {} : { token: sent }) });
  if (result.ok) rejected = '';
  // Without a token, a proxy may have signed the user in. A reply to a former token is ignored.
  const isCurrent = sent !== '' && sent === token.value;
  if (!result.ok && result.code === 'unauthorized' && isCurrent && sent !== rejected) {
    rejected = sent;
    signedOut.handle(result.message);
  }
  return result;
}

/**
 * Shows a problem next to what caused it.
 * @param {string} id
 * @param {string} message the empty string removes it
 */
export function showProblemAt(id, message) {
  const problem = element(id, HTMLElement);
  if (problem.textContent !== message) problem.textContent = message;
  problem.hidden = message === '';
}

/**
 * Shows problems beside the fields that cause them, any other one at its place.
 * @param {Result<unknown>} result
 * @param {Readonly<Record<string, HTMLInputElement | HTMLSelectElement>>} fields by the member of
 * the request that the service names
 * @param {string} place
 */
export function showProblems(result, fields, place) {
  const errors = result.ok ? [] : result.fields;
  const known = new Map(errors.map(({ path, message }) => [path.split('/')[1] ?? '', message]));
  // The first one gets the focus.
  for (const [name, field] of Object.entries(fields).reverse())
    showFieldProblem(field, known.get(name) ?? '');
  const isElsewhere = !result.ok && ![...known.keys()].some((name) => fields[name]);
  showProblemAt(place, isElsewhere ? result.message : '');
}

/**
 * Says at the button that its work is done, for a moment.
 * @param {HTMLButtonElement} button
 * @param {string} text
 */
export function confirmAt(button, text) {
  const before = button.dataset.label ?? button.textContent ?? '';
  button.dataset.label = before;
  button.textContent = text;
  button.classList.add('done');
  setTimeout(() => {
    button.textContent = before;
    button.classList.remove('done');
  }, 2_000);
}

/**
 * Between two requests of the live view: so many times as long as the last one took, within these
 * bounds.
 */
const POLL_RATIO = 5;
const MIN_POLL_MS = 1_000;
const MAX_POLL_MS = 5_000;

/**
 * Calls `refresh` at once when the page becomes visible, and again and again while it is.
 * A slow service is asked less often.
 * @param {() => Promise<void>} refresh
 * @returns {() => Promise<void>} refreshes now
 */
export function poll(refresh) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let runs = 0;
  async function run() {
    clearTimeout(timer);
    runs += 1;
    const mine = runs;
    const startedAt = performance.now();
    await refresh();
    if (mine === runs && !document.hidden) {
      const pause = POLL_RATIO * (performance.now() - startedAt);
      timer = setTimeout(run, Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, pause)));
    }
  }
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) void run();
  });
  return run;
}
