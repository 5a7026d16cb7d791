import { callApi, copyOnClick, element, showProblem, switchSection } from '/pages/page.js';
import { qrCode } from '/pages/qr.js';

/** @import { Result } from '/pages/page.js' */

const form = element('make', HTMLFormElement);
/** The token is kept only in this field. It is not stored, and only this service receives it. */
const token = element('token', HTMLInputElement);
const secret = element('secret', HTMLTextAreaElement);
const expiry = element('expires-in', HTMLSelectElement);
const reads = element('max-reads', HTMLInputElement);
const passphrase = element('passphrase', HTMLInputElement);
const link = element('link', HTMLInputElement);
/** The limit that applies if the number of reads is left empty; empty for no limit. */
let defaultReads = '';

/** True during a request. The button is not disabled, because a disabled button loses the keyboard focus. */
let isPending = false;
let latestRequest = 0;

/** Once a token is entered, the form offers only what the operator allows. */
token.addEventListener('change', async () => {
  const thisRequest = ++latestRequest;
  /** @type {Result<{ expires_in: { max: number }, max_reads: { default: number | null, max: number } }>} */
  const options = await callApi('/api/store/options', { token: token.value });
  // The message of a later request stays.
  if (thisRequest === latestRequest) showProblem(options.ok ? '' : messageFor(options));
  if (!options.ok) return;
  const { expires_in, max_reads } = options.data;
  const choices = [...expiry.options];
  for (const choice of choices) choice.disabled = Number(choice.value) > expires_in.max;
  if (expiry.selectedOptions[0]?.disabled !== false) {
    expiry.value = choices.findLast((choice) => !choice.disabled)?.value ?? '';
  }
  reads.max = String(max_reads.max);
  defaultReads = String(max_reads.default ?? '');
});

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  if (isPending) return;
  isPending = true;
  latestRequest += 1;
  /** @type {Result<{ id: string, secret: string, expires_at: string | null }>} */
  const created = await callApi('/api/store/encrypt', {
    token: token.value,
    body: {
      password: secret.value,
      ...(expiry.value === '' ? {} : { expires_in: Number(expiry.value) }),
      ...(reads.value === '' ? {} : { max_reads: Number(reads.value) }),
      ...(passphrase.value === '' ? {} : { passphrase: passphrase.value }),
    },
  });
  isPending = false;
  if (!created.ok) return showProblem(messageFor(created));
  const { id, secret: key, expires_at } = created.data;
  link.value = `${location.origin}/s/${id}#${key}`;
  const until = expires_at === null ? 'with no time limit' : `until ${formatTime(expires_at)}`;
  element('until', HTMLElement).textContent = until;
  element('how-often', HTMLElement).textContent = formatReads(reads.value || defaultReads);
  element('locked', HTMLElement).hidden = passphrase.value === '';
  drawQr(link.value);
  secret.value = passphrase.value = '';
  switchSection('make', 'made');
});

element('again', HTMLButtonElement).addEventListener('click', () => {
  link.value = '';
  drawQr(null);
  switchSection('made', 'make');
});

copyOnClick(element('copy', HTMLButtonElement), link, () => link.value);

/** @param {string} time */
const formatTime = (time) => new Date(time).toLocaleString(undefined, { dateStyle: 'long', timeStyle: 'short' });

/** @param {string} limit empty for no limit */
const formatReads = (limit) => (limit === '' ? 'any number of times' : limit === '1' ? 'once' : `${limit} times`);

/** @param {{ code: string, message: string }} failure */
const messageFor = ({ code, message }) =>
  code === 'unauthorized' ? 'This access token is not valid. Check it, or ask the operator for a valid one.' : message;

/** @param {string | null} text null to remove the picture */
function drawQr(text) {
  const figure = element('qr', HTMLElement);
  const modules = text === null ? null : qrCode(text);
  figure.replaceChildren();
  figure.hidden = modules === null;
  if (!modules) return;
  const create = (/** @type {string} */ name, /** @type {Record<string, string>} */ attributes) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  // With the quiet zone of four modules on each side.
  const size = modules.length + 8;
  const label = { role: 'img', 'aria-label': 'The link as a QR code' };
  const picture = create('svg', { viewBox: `0 0 ${size} ${size}`, ...label });
  const squares = modules.flatMap((row, y) => row.flatMap((dark, x) => (dark ? `M${x + 4} ${y + 4}h1v1h-1z` : [])));
  // Always dark on light, because not every scanner reads inverted codes.
  const background = create('rect', { width: String(size), height: String(size), fill: '#fff' });
  picture.append(background, create('path', { d: squares.join(''), fill: '#000' }));
  figure.append(picture);
}
