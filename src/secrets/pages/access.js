/** Who uses a form, and what the service allows: for every form that stores something. */
import { callApi, element, showFieldProblem, showPerson, showProblem } from '/pages/page.js';

/** @import { Failure, Result } from '/pages/page.js' */
/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Control */
/**
 * @typedef {{
 *   expires_in: { max: number },
 *   max_reads: { max: number },
 *   passphrase: { min_length: number },
 *   password: { max_bytes: number },
 *   caller: { role: string, user: string | null },
 * }} Options
 */

/** The token is kept only in this field. It is not stored, and only this service receives it. */
const token = element('token', HTMLInputElement);
const tokenPart = element('token-part', HTMLElement);
const expiry = element('expires-in', HTMLSelectElement);
let latestRequest = 0;

/**
 * The form offers only what the operator allows.
 * @param {boolean} isFirst before a token is entered
 * @param {(options: Options) => void} show
 */
async function loadOptions(isFirst, show) {
  const thisRequest = ++latestRequest;
  /** @type {Result<Options>} */
  const options = await callApi('/api/store/options', isFirst ? {} : { token: token.value });
  // The message of a later request stays.
  if (thisRequest !== latestRequest) return;
  if (!options.ok) {
    const isExpected = isFirst && options.code === 'unauthorized';
    return isExpected ? undefined : showFailure(options, NO_FIELDS, false);
  }
  showFieldProblem(token, '');
  showProblem('');
  if (isFirst) tokenPart.hidden = true;
  element('submit', HTMLButtonElement).classList.add('primary');
  showPerson(options.data.caller.user);
  element('own-links', HTMLElement).hidden = options.data.caller.user === null;
  offerExpiries(options.data.expires_in.max);
  show(options.data);
}

/** @param {number} max */
function offerExpiries(max) {
  const choices = [...expiry.options];
  for (const choice of choices) choice.disabled = Number(choice.value) > max;
  // An operator may allow less than the shortest choice.
  if (choices.every((choice) => choice.disabled)) {
    expiry.add(new Option(`${max} seconds`, String(max)));
    expiry.value = String(max);
  } else if (expiry.selectedOptions[0]?.disabled !== false) {
    expiry.value = choices.findLast((choice) => !choice.disabled)?.value ?? '';
  }
}

/** Loads the limits now, and again for each token. @param {(options: Options) => void} show */
export function watchAccess(show) {
  void loadOptions(true, show);
  // What was typed would be lost with this page, and is not stored: the sign-in gets its own tab.
  const signIn = element('sign-in', HTMLAnchorElement);
  signIn.closest('form')?.addEventListener('input', () => {
    signIn.target = '_blank';
    signIn.textContent = 'Sign in in a new tab, then come back';
  });
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden && !signIn.hidden && !tokenPart.hidden) void loadOptions(true, show);
  });
  token.addEventListener('change', () => {
    void loadOptions(false, show);
  });
}

/** Removes the messages of the form before its content is sent. @param {Control[]} controls */
export function clearProblems(controls) {
  latestRequest += 1;
  for (const control of [token, ...controls]) showFieldProblem(control, '');
  showProblem('');
}

/** @param {Control} control @param {string} message */
export const problem = (control, message) => ({ control, message });

/** @returns the mistake in the token, if there is one */
export const tokenProblem = () =>
  !tokenPart.hidden && token.value === '' ? problem(token, 'Enter your access token.') : null;

/** For requests of the form. */
export const credentials = () => (tokenPart.hidden ? {} : { token: token.value });

/** @type {ReadonlyMap<string, Control>} */
const NO_FIELDS = new Map();

/**
 * Shows each message next to the control that it concerns, and keeps what was typed.
 * @param {Failure} failure
 * @param {ReadonlyMap<string, Control>} controls by the members of the request
 * @param {boolean} takesFocus as of `showFieldProblem`
 */
export function showFailure({ code, message, fields }, controls, takesFocus = true) {
  if (code === 'unauthorized' && !tokenPart.hidden) {
    const advice =
      token.value === ''
        ? 'Enter your access token.'
        : 'This access token is not valid. Check it, or ask for a valid one.';
    return showFieldProblem(token, advice, takesFocus);
  }
  const [first] = fields;
  const control = first && controls.get(first.path);
  if (first && control) return showFieldProblem(control, `This ${first.message}.`);
  showProblem(
    code === 'body_too_large'
      ? 'This is too large. Share a shorter text or a smaller file.'
      : message,
  );
}
