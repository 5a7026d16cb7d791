/**
 * Passkeys on the sign-in and account pages: fills the form `passkey` with what the authenticator
 * returned.
 */

/** @param {ArrayBuffer} buffer */
function encode(buffer) {
  if (buffer.byteLength === 0) throw new TypeError('empty');
  return btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');
}

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
const isCreating = form?.dataset.create !== undefined;
const isSignIn = document.getElementById('username') !== null;
/** Only one request to the authenticator may run. @type {AbortController | null} */
let running = null;
/** Whether it is the one of the name field. */
let isOffering = false;

/** With a sentence for the person. */
class Problem extends Error {}

const UNREACHABLE = 'The service did not answer. Check your connection, and try again.';
const INCOMPLETE =
  'Your browser or password manager did not return all of the passkey. If it keeps one for this site, remove it there. Then try again with another device or password manager.';

/** A challenge is valid for five minutes. */
const CHALLENGE_MS = 240_000;

/** @returns {Promise<Options>} */
async function loadOptions() {
  const path = form?.getAttribute('action') ?? '';
  const response = await fetch(path, { cache: 'no-store', redirect: 'manual' }).catch(() => null);
  if (response?.ok) return (await response.json()).data;
  // The sign-in has ended, or is too old to add a passkey: the page leads to another one.
  if (response?.type === 'opaqueredirect') location.reload();
  const reply = await response?.json().catch(() => null);
  throw new Problem(reply?.error?.message ?? UNREACHABLE);
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

/** @param {boolean} isPasskey @param {AbortSignal} signal */
async function create(isPasskey, signal) {
  const options = await loadOptions();
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
      timeout: CHALLENGE_MS,
    },
  });
  return complete(() => readNew(credential, isPasskey));
}

/**
 * Extensions that keep passkeys return objects of their own, with or without the prototypes of the
 * browser, on which a call of a method throws. So only what every authenticator has is read, and
 * the service decodes it.
 * @template T @param {() => T} read
 */
function complete(read) {
  try {
    return read();
  } catch (error) {
    console.warn(error);
    throw new Problem(INCOMPLETE);
  }
}

/** @param {any} credential @param {boolean} isPasskey */
function readNew(credential, isPasskey) {
  const { clientDataJSON, attestationObject } = credential.response;
  return {
    type: 'public-key',
    clientDataJSON: encode(clientDataJSON),
    attestationObject: encode(attestationObject),
    rk: isPasskey ? isListed(credential) : false,
  };
}

/**
 * Whether the device lists the passkey by itself; undefined if the browser does not know.
 * @param {any} credential
 */
function isListed(credential) {
  try {
    const { rk } = credential.getClientExtensionResults().credProps;
    return typeof rk === 'boolean' ? rk : undefined;
  } catch {
    return undefined;
  }
}

/** @param {CredentialMediationRequirement} mediation @param {AbortSignal} signal */
async function get(mediation, signal) {
  const askedAt = Date.now();
  const options = await loadOptions();
  const credential = await navigator.credentials.get({
    signal,
    mediation,
    publicKey: {
      challenge: decode(options.challenge),
      rpId: options.host,
      allowCredentials: allowed(options),
      userVerification: options.ids.length > 0 ? 'preferred' : 'required',
      timeout: CHALLENGE_MS,
    },
  });
  // The list of the name field stays open longer, for example while the computer sleeps.
  if (Date.now() - askedAt > CHALLENGE_MS) return null;
  return complete(() => readProof(credential));
}

/** @param {any} credential */
function readProof(credential) {
  const { clientDataJSON, authenticatorData, signature, userHandle } = credential.response;
  return {
    id: credential.id ?? encode(credential.rawId),
    type: 'public-key',
    clientDataJSON: encode(clientDataJSON),
    authenticatorData: encode(authenticatorData),
    signature: encode(signature),
    ...(userHandle?.byteLength ? { userHandle: encode(userHandle) } : {}),
  };
}

const problem = document.createElement('p');
problem.className = 'problem';
problem.setAttribute('role', 'alert');

const REASONS = 'The request was canceled or timed out, or';
/** By what was asked for. */
const CANCELED = {
  passkey: `No passkey was added. ${REASONS} this device or security key cannot check your fingerprint, face or PIN. Add a security key without these as a second step.`,
  secondStep: `No security key was added. ${REASONS} no key answered. Try again.`,
  alone: `No passkey was used. ${REASONS} there is none here that signs in without your password. Enter your password instead.`,
  afterPassword: `Nothing was used. ${REASONS} no passkey or security key of yours is here. Try again, or enter a code.`,
};
/** By the names of the errors of browsers (WebAuthn Level 3, 5.1.3 and 5.1.4). */
const ERRORS = new Map([
  ['InvalidStateError', 'This device or security key was added before.'],
  ['SecurityError', 'Passkeys do not work at the address of this page. Tell the operator.'],
  ['NotSupportedError', 'This browser or device does not support the passkeys of this site.'],
]);

/** @param {unknown} error @param {string} canceled */
function sentenceFor(error, canceled) {
  if (error instanceof Problem) return error.message;
  const name = error instanceof Error ? error.name : 'unknown';
  if (/^(NotAllowed|Abort|Constraint|Timeout)Error$/.test(name)) return canceled;
  const other = `Your browser or password manager failed (${name}). Try again, or use another device.`;
  return ERRORS.get(name) ?? other;
}

/**
 * @param {(signal: AbortSignal) => Promise<object | null>} ask null if it was answered too late
 * @param {string} canceled a sentence; empty if the person has not asked for it
 */
async function submit(ask, canceled) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  problem.remove();
  try {
    const credential = await ask(signal);
    if (!credential) {
      isOffering = false;
      await submit((fresh) => get('optional', fresh), canceled || CANCELED.alone);
      return;
    }
    if (!(form instanceof HTMLFormElement) || !(field instanceof HTMLInputElement)) return;
    field.value = JSON.stringify(credential);
    const stay = document.querySelector('#stay:checked');
    if (stay) form.append(stay.cloneNode());
    form.submit();
  } catch (error) {
    // Another request has taken the place of an aborted one.
    if (signal.aborted) return;
    console.warn(error);
    const sentence = sentenceFor(error, canceled);
    // The person may have chosen a passkey from the list.
    if (canceled === '' && sentence !== INCOMPLETE) return;
    problem.textContent = sentence;
    form?.append(problem);
  }
}

/** Offers passkeys in the list of the name field. */
function offer() {
  isOffering = true;
  void submit((signal) => get('conditional', signal), '');
}

/** @param {SubmitEvent} event */
function onSubmit(event) {
  event.preventDefault();
  isOffering = false;
  if (!isCreating) {
    void submit(
      (signal) => get('optional', signal),
      isSignIn ? CANCELED.alone : CANCELED.afterPassword,
    );
    return;
  }
  const isPasskey = event.submitter?.id !== 'second-step';
  const canceled = isPasskey ? CANCELED.passkey : CANCELED.secondStep;
  void submit((signal) => create(isPasskey, signal), canceled);
}

if (form && 'PublicKeyCredential' in window) {
  for (const part of form.querySelectorAll('[hidden]')) part.removeAttribute('hidden');
  form.addEventListener('submit', onSubmit);
  if (isSignIn && (await PublicKeyCredential.isConditionalMediationAvailable?.())) {
    offer();
    setInterval(() => {
      if (isOffering) offer();
    }, CHALLENGE_MS);
  }
} else if (isCreating) {
  problem.textContent = 'This browser offers no passkeys at this address.';
  form?.append(problem);
}
