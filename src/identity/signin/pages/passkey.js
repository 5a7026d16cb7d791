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
const button = form?.querySelector('button');
const field = form?.querySelector('input[name="credential"]');
/** Only one request to the authenticator may run. @type {AbortController | null} */
let running = null;

/** @param {string} path @returns {Promise<Options | null>} null for a redirect or a failure */
async function load(path) {
  const response = await fetch(path, { cache: 'no-store', redirect: 'manual' });
  return response.ok ? (await response.json()).data : null;
}

/** @param {Options} options */
const allowed = ({ ids }) =>
  ids.map((id) => ({ type: /** @type {const} */ ('public-key'), id: decode(id) }));

/** @param {AbortSignal} signal */
async function create(signal) {
  const options = await load('/account/passkeys');
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
      authenticatorSelection: { residentKey: 'required', userVerification: 'preferred' },
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
  };
}

/** @param {AbortSignal} signal @param {CredentialMediationRequirement} mediation */
async function get(signal, mediation) {
  const options = await load('/login/passkey');
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

/**
 * After a cancellation or a timeout, the form stays.
 * @param {(signal: AbortSignal) => Promise<object | null>} ask
 */
async function submit(ask) {
  running?.abort();
  running = new AbortController();
  try {
    const credential = await ask(running.signal);
    if (!credential || !(form instanceof HTMLFormElement) || !(field instanceof HTMLInputElement))
      return;
    field.value = JSON.stringify(credential);
    form.submit();
  } catch (error) {
    if (!(error instanceof DOMException)) throw error;
  }
}

if (form instanceof HTMLFormElement && button && 'PublicKeyCredential' in window) {
  const isCreating = 'create' in form.dataset;
  button.hidden = false;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void submit(isCreating ? create : (signal) => get(signal, 'optional'));
  });
  // The browser offers passkeys in the list of the name field.
  const canOffer = !isCreating && document.getElementById('username') !== null;
  if (canOffer && (await PublicKeyCredential.isConditionalMediationAvailable?.())) {
    void submit((signal) => get(signal, 'conditional'));
  }
}
