import { ask, complain, copies, element, turnTo } from '/pages/page.js';
import { qrCode } from './qr.js';

/** @import { Answer } from '/pages/page.js' */

const form = element('make', HTMLFormElement);
/** Held by this field alone: neither stored nor sent anywhere but to this service. */
const token = element('token', HTMLInputElement);
const secret = element('secret', HTMLTextAreaElement);
const expiry = element('expires-in', HTMLSelectElement);
const reads = element('max-reads', HTMLInputElement);
const passphrase = element('passphrase', HTMLInputElement);
const link = element('link', HTMLInputElement);
/** What holds where the number of reads is left empty. */
let usualReads = '';

/** While the service is asked. Not `disabled`, which would take the focus away and send the keyboard back to the top. */
let isAsking = false;
let turn = 0;

/** Once there is a token, the form offers what the operator allows. */
token.addEventListener('change', async () => {
  const mine = ++turn;
  /** @type {Answer<{ expires_in: { max: number }, max_reads: { default: number | null, max: number } }>} */
  const options = await ask('/api/store/options', { token: token.value });
  // What was said since then is of more use.
  if (mine === turn) complain(options.ok ? '' : words(options));
  if (!options.ok) return;
  const { expires_in: life, max_reads: most } = options.data;
  for (const choice of [...expiry.options]) choice.disabled = Number(choice.value) > life.max;
  if (expiry.selectedOptions[0]?.disabled !== false) expiry.value = [...expiry.options].findLast((choice) => !choice.disabled)?.value ?? '';
  reads.max = String(most.max);
  usualReads = String(most.default ?? '');
});

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  if (isAsking) return;
  isAsking = true;
  turn += 1;
  /** @type {Answer<{ id: string, secret: string, expires_at: string | null }>} */
  const made = await ask('/api/store/encrypt', {
    token: token.value,
    body: {
      password: secret.value,
      ...(expiry.value === '' ? {} : { expires_in: Number(expiry.value) }),
      ...(reads.value === '' ? {} : { max_reads: Number(reads.value) }),
      ...(passphrase.value === '' ? {} : { passphrase: passphrase.value }),
    },
  });
  isAsking = false;
  if (!made.ok) return complain(words(made));
  link.value = `${location.origin}/s/${made.data.id}#${made.data.secret}`;
  element('until', HTMLElement).textContent = made.data.expires_at === null ? 'without an end' : `until ${new Date(made.data.expires_at).toLocaleString(undefined, { dateStyle: 'long', timeStyle: 'short' })}`;
  const often = reads.value || usualReads;
  element('how-often', HTMLElement).textContent = often === '' ? 'as often as it is asked for' : often === '1' ? 'once' : `${often} times`;
  element('locked', HTMLElement).hidden = passphrase.value === '';
  drawQr(link.value);
  secret.value = passphrase.value = '';
  turnTo('make', 'made');
});

element('again', HTMLButtonElement).addEventListener('click', () => {
  link.value = '';
  drawQr(null);
  turnTo('made', 'make');
});

copies(element('copy', HTMLButtonElement), link, () => link.value);

/** @param {{ code: string, words: string }} failure */
const words = (failure) => (failure.code === 'unauthorized' ? 'This access token is not the right one. Ask the operator of this service for it.' : failure.words);

/** @param {string | null} text */
function drawQr(text) {
  const figure = element('qr', HTMLElement);
  const modules = text === null ? null : qrCode(text);
  figure.replaceChildren();
  figure.hidden = modules === null;
  if (!modules) return;
  const create = (/** @type {string} */ name, /** @type {Record<string, string>} */ attributes) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const side = modules.length + 8;
  const picture = create('svg', { viewBox: `0 0 ${side} ${side}`, role: 'img', 'aria-label': 'The link as a QR code' });
  // Dark on light whatever the colours of the page are: not every reader takes the reverse.
  const path = modules.flatMap((row, y) => row.flatMap((dark, x) => (dark ? `M${x + 4} ${y + 4}h1v1h-1z` : []))).join('');
  picture.append(create('rect', { width: String(side), height: String(side), fill: '#fff' }), create('path', { d: path, fill: '#000' }));
  figure.append(picture);
}
