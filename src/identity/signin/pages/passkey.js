/**
 * Passkeys on the sign-in and account pages: fills the form `passkey` with what the authenticator
 * returned.
 */

/** @param {ArrayBuffer} buffer */
const encode = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');

/** @param {string} text */
const decode = (text) =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));

/**
 * @typedef {{
 *   challenge: string,
 *   host: string,
 *   ids: string[],
 *   algorithms: number[],
 *   user?: { id: string, name: string },
 * }} Options
 */

const form = document.getElementById('passkey');
const field = form?.querySelector('input[name="credential"]');
/** Only one request to the authenticator may run. @type {AbortController | null} */
let running = null;

/** @returns {Promise<Options | null>} null for a redirect or a failure */
async function loadOptions() {
  const path = form?.getAttribute('action') ?? '';
  const response = await fetch(path, { cache: 'no-store', redirect: 'manual' });
  return response.ok ? (await response.json()).data : null;
}

/** @param {Options} options */
const allowed = ({ ids }) =>
  ids.map((id) => ({ type: /** @type {const} */ ('public-key'), id: decode(id) }));

const PASSKEY = /** @type {const} */ ({
  residentKey: 'required',
  userVerification: 'required',
});
/** Any key can be a second step: older ones neither keep a list of their passkeys nor have a PIN. */
const SECOND_STEP = /** @type {const} */ ({
  residentKey: 'discouraged',
  userVerification: 'discouraged',
});

/** @param {AbortSignal} signal @param {boolean} isPasskey */
async function create(signal, isPasskey) {
  const options = await loadOptions();
  if (!options) {
    // The sign-in has ended, or is too old to add a passkey: the page leads to another one.
    location.reload();
    return null;
  }
  const user = options.user ?? { id: '', name: '' };
  const credential = await navigator.credentials.create({
    signal,
    publicKey: {
      challenge: decode(options.challenge),
      rp: { id: options.host, name: options.host },
      user: { id: decode(user.id), name: user.name, displayName: user.name },
      pubKeyCredParams: options.algorithms.map((alg) => ({ type: 'public-key', alg })),
      authenticatorSelection: isPasskey ? PASSKEY : SECOND_STEP,
      excludeCredentials: allowed(options),
      attestation: 'none',
      extensions: { credProps: true },
    },
  });
  if (!(credential instanceof PublicKeyCredential)) return null;
  const { response } = credential;
  if (!(response instanceof AuthenticatorAttestationResponse)) return null;
  // Browsers decode the keys of all offered algorithms (WebAuthn Level 3, 5.2.1.1).
  const publicKey = response.getPublicKey();
  if (publicKey === null) return null;
  return {
    id: credential.id,
    type: credential.type,
    clientDataJSON: encode(response.clientDataJSON),
    authenticatorData: encode(response.getAuthenticatorData()),
    publicKey: encode(publicKey),
    rk: isPasskey ? credential.getClientExtensionResults().credProps?.rk : false,
  };
}

/** @param {AbortSignal} signal @param {CredentialMediationRequirement} mediation */
async function get(signal, mediation) {
  const options = await loadOptions();
  if (!options) return null;
  const credential = await navigator.credentials.get({
    signal,
    mediation,
    publicKey: {
      challenge: decode(options.challenge),
      rpId: options.host,
      allowCredentials: allowed(options),
      userVerification: options.ids.length > 0 ? 'preferred' : 'required',
    },
  });
  if (!(credential instanceof PublicKeyCredential)) return null;
  const { response } = credential;
  if (!(response instanceof AuthenticatorAssertionResponse)) return null;
  const { clientDataJSON, authenticatorData, signature, userHandle } = response;
  return {
    id: credential.id,
    type: credential.type,
    clientDataJSON: encode(clientDataJSON),
    authenticatorData: encode(authenticatorData),
    signature: encode(signature),
    ...(userHandle ? { userHandle: encode(userHandle) } : {}),
  };
}

const problem = document.createElement('p');
problem.className = 'problem';
problem.setAttribute('role', 'alert');

const REASONS = 'The request was canceled or timed out, or';
const PROBLEMS = {
  passkey: `No passkey was added. ${REASONS} this device or security key cannot check your fingerprint, face or PIN. Add a security key without these as a second step.`,
  secondStep: `No security key was added. ${REASONS} no key answered. Try again.`,
  alone: `No passkey was used. ${REASONS} there is none here that signs in without your password. Enter your password instead.`,
  afterPassword: `Nothing was used. ${REASONS} no passkey or security key of yours is here. Try again, or enter a code.`,
};
const KNOWN = 'This device or security key was added before.';

/**
 * After a cancellation or a timeout, the form stays.
 * @param {(signal: AbortSignal) => Promise<object | null>} ask
 * @param {string} sentence for a failure; empty if the user has not asked for it
 */
async function submit(ask, sentence) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  problem.remove();
  try {
    const credential = await ask(signal);
    if (!credential || !(form instanceof HTMLFormElement) || !(field instanceof HTMLInputElement))
      return;
    field.value = JSON.stringify(credential);
    form.submit();
  } catch (error) {
    const isKnown = error instanceof DOMException && error.name === 'InvalidStateError';
    problem.textContent = isKnown ? KNOWN : sentence;
    // Another request has taken the place of an aborted one.
    if (!signal.aborted && sentence !== '') form?.append(problem);
    if (!(error instanceof DOMException)) throw error;
  }
}

/** @param {SubmitEvent} event */
function onSubmit(event) {
  event.preventDefault();
  if (!isCreating) {
    const sentence = isSignIn ? PROBLEMS.alone : PROBLEMS.afterPassword;
    void submit((signal) => get(signal, 'optional'), sentence);
    return;
  }
  const isPasskey = event.submitter?.id !== 'second-step';
  const sentence = isPasskey ? PROBLEMS.passkey : PROBLEMS.secondStep;
  void submit((signal) => create(signal, isPasskey), sentence);
}

const isCreating = form?.dataset.create !== undefined;
const isSignIn = document.getElementById('username') !== null;

if (form && 'PublicKeyCredential' in window) {
  for (const button of form.querySelectorAll('button')) button.hidden = false;
  form.addEventListener('submit', onSubmit);
  // The browser offers passkeys in the list of the name field.
  if (isSignIn && (await PublicKeyCredential.isConditionalMediationAvailable?.())) {
    void submit((signal) => get(signal, 'conditional'), '');
  }
}
