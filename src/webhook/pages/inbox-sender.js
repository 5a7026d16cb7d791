/** One sender: its state, its target, and what can be done with its token. */
import { copyOnClick, element, whileBusy } from '/pages/page.js';
import { call, showProblemAt, showProblems } from '/pages/inbox-api.js';
import {
  create,
  createBadge,
  createJson,
  createTime,
  formatDuration,
} from '/pages/inbox-format.js';

/** @import { Result } from '/pages/page.js' */
/**
 * @typedef {{
 *   id: string, name: string, source: string, custom: object | null, pending: boolean,
 *   created_at: string, last_used_at: string | null, target: string | null, url: string | null,
 *   events: string[] | null, timeout_seconds: number | null, is_signed: boolean,
 *   keep_signature: boolean, order_by: string | null, next_probe_at: string | null,
 *   refused: number,
 *   last_refusal: string | null, last_refusal_detail: string | null,
 *   last_refused_from: string | null, last_refused_at: string | null,
 *   last_handshake: string | null, last_handshake_at: string | null,
 * }} Sender
 * @typedef {{ target: string, error: string | null, duration_ms: number,
 *   answer_status: number | null, answer: string | null }} Test
 */

const field = {
  url: element('target-url', HTMLInputElement),
  events: element('target-events', HTMLInputElement),
  timeout: element('target-timeout', HTMLInputElement),
  signing: element('target-signing', HTMLSelectElement),
  secret: element('target-secret', HTMLInputElement),
  keep: element('target-keep', HTMLInputElement),
};
const TARGET_FIELDS = {
  url: field.url,
  events: field.events,
  timeout_seconds: field.timeout,
  secret: field.secret,
};
const nameField = element('rename-name', HTMLInputElement);
const orderField = element('rename-order', HTMLInputElement);
const what = element('rotate-what', HTMLSelectElement);
const newSecret = element('rotate-secret', HTMLInputElement);
const overlap = element('rotate-overlap', HTMLSelectElement);
const made = element('made', HTMLElement);
const pendingSecret = element('pending-secret', HTMLElement);
let shownId = '';
/** Whether the target is a program, which only a URL replaces here. */
let isProgram = false;
/** The fingerprint of the pending secret that is shown. */
let fingerprint = '';
/** @type {(address: string) => void} */
let open = () => {};

/** @param {string} done what was done; the empty string removes it */
function showDone(done) {
  const note = element('sender-done', HTMLElement);
  note.textContent = done;
  note.hidden = done === '';
}

/** Shows a new token, only now. @param {string} token the empty string to forget it */
export function showMade(token) {
  const address = new URL('/webhook', location.origin);
  address.searchParams.set('token', token);
  element('made-token', HTMLInputElement).value = token;
  element('made-address', HTMLInputElement).value = token && address.href;
  made.hidden = token === '';
  if (token !== '') element('made-text', HTMLElement).focus();
}

/** @param {Sender} sender */
function factsOf(sender) {
  const { last_refused_at: refusedAt, last_handshake_at: checkedAt } = sender;
  /** @param {string | null} time */
  const timeOf = (time) => (time === null ? 'never' : createTime(time));
  /** @type {Array<[string, ...Array<string | Node>]>} */
  const facts = [
    ['Source', sender.source],
    ['Created', createTime(sender.created_at)],
    ['Last request', timeOf(sender.last_used_at)],
    ['Last check of the address', timeOf(checkedAt), ` ${sender.last_handshake ?? ''}`],
    ['Refused in 24 h', String(sender.refused)],
    ['Token ID', create('span', 'mono', sender.id)],
  ];
  if (refusedAt !== null) {
    const { last_refusal: code, last_refusal_detail: detail, last_refused_from: from } = sender;
    facts.push(['Last refused', createTime(refusedAt), ` from ${from}: ${detail || code}`]);
  }
  if (sender.custom !== null) facts.push(['Description', createJson(sender.custom)]);
  return facts.flatMap(([name, ...value]) => [create('dt', '', name), create('dd', '', ...value)]);
}

/** Fills the form with what is set: what is not changed stays. @param {Sender} sender */
function fillTarget({ target, url, events, timeout_seconds, is_signed, keep_signature }) {
  field.url.value = url ?? '';
  field.events.value = events?.join(', ') ?? '';
  field.timeout.value = String(timeout_seconds ?? '');
  field.signing.value = 'keep';
  field.secret.value = '';
  field.keep.checked = keep_signature;
  showSigning();
  isProgram = target !== null && url === null;
  const own = isProgram ? `${target}, set by command. A URL replaces it.` : `Events go to ${url}.`;
  const signed = is_signed ? ' Gatehouse signs its requests.' : ' Its requests are not signed.';
  element('target-state', HTMLElement).textContent =
    target === null ? 'The target of the service, if it has one. A URL replaces it.' : own + signed;
  element('target-default', HTMLButtonElement).hidden = target === null;
}

function showSigning() {
  element('target-secret-part', HTMLElement).hidden = field.signing.value !== 'set';
}

/** @param {Sender} sender @param {boolean} fillsForms not over what a person is typing */
function show(sender, fillsForms) {
  element('sender-found', HTMLElement).hidden = false;
  element('sender-heading', HTMLElement).textContent = sender.name || sender.id;
  element('sender-facts', HTMLElement).replaceChildren(...factsOf(sender));
  element('pending', HTMLFormElement).hidden = !sender.pending;
  for (const guide of element('guide', HTMLElement).querySelectorAll('dl'))
    guide.hidden = guide.dataset.source !== sender.source;
  if (!fillsForms) return;
  nameField.value = sender.name;
  orderField.value = sender.order_by ?? '';
  fillTarget(sender);
}

async function load(fillsForms = true) {
  const id = shownId;
  /** @type {Awaited<ReturnType<typeof call<Sender[]>>>} */
  const result = await call('/tokens');
  if (id !== shownId) return;
  const sender = result.ok ? result.data.find((one) => one.id === id) : undefined;
  const missing = result.ok ? 'There is no active sender with this address.' : result.message;
  showProblemAt('sender-problem', sender ? '' : missing);
  if (sender) show(sender, fillsForms);
}

/** @param {string} id the empty string forgets what is shown of the last one */
export async function showSender(id) {
  shownId = id;
  showMade('');
  showDone('');
  showPending('', '');
  newSecret.value = '';
  element('sender-found', HTMLElement).hidden = true;
  element('sender-heading', HTMLElement).textContent = 'Sender';
  element('test', HTMLElement).replaceChildren();
  element('revoke', HTMLDetailsElement).open = false;
  for (const problem of ['target-problem', 'rotate-problem', 'pending-problem'])
    showProblemAt(problem, '');
  if (id !== '') await load();
}

/** @param {string} secret @param {string} itsFingerprint */
function showPending(secret, itsFingerprint) {
  fingerprint = itsFingerprint;
  pendingSecret.textContent = secret;
  pendingSecret.hidden = secret === '';
  element('pending-confirm', HTMLButtonElement).hidden = secret === '';
}

/**
 * Changes something of the sender, says it, and shows what is set then.
 * @template Data
 * @param {string} path behind the sender's
 * @param {{ method?: string, body?: object }} request
 * @param {Parameters<typeof showProblems>[1]} fields
 * @param {string} problem the id of its place
 * @param {string} done
 * @returns {Promise<Data | null>}
 */
async function change(path, request, fields, problem, done) {
  /** @type {Result<Data>} */
  const result = await call(`/tokens/${shownId}${path}`, { method: 'POST', ...request });
  showProblems(result, fields, problem);
  showDone(result.ok ? done : '');
  if (!result.ok) return null;
  await load(path === '/target');
  return result.data;
}

/** What is empty is taken back; a secret only if this is chosen. What is no number is refused. */
function targetBody() {
  const events = field.events.value.split(',').flatMap((name) => name.trim() || []);
  const { url, signing, secret, timeout } = field;
  return {
    ...(isProgram && url.value === '' ? {} : { url: url.value.trim() }),
    events: events.length > 0 ? events : null,
    timeout_seconds: timeout.value === '' ? null : Number(timeout.value) || timeout.value,
    keep_signature: field.keep.checked,
    ...(signing.value === 'set' ? { secret: secret.value } : {}),
    ...(signing.value === 'remove' ? { secret: null } : {}),
  };
}

/** @param {Test} test */
function showTest({ target, error, duration_ms, answer_status, answer }) {
  const badge = createBadge(error === null ? 'delivered' : 'failed');
  const status = answer_status === null ? '' : `, status ${answer_status}`;
  const text = ` ${target}${status}, ${formatDuration(duration_ms)}`;
  /** @type {HTMLElement[]} */
  const parts = [create('p', '', badge, text)];
  if (error !== null) parts.push(create('p', 'error', error));
  if (answer) {
    const shown = create('pre', 'answer', answer);
    shown.tabIndex = 0;
    parts.push(shown);
  }
  element('test', HTMLElement).replaceChildren(...parts);
}

/**
 * Does the work of a form once at a time.
 * @param {string} id @param {() => Promise<unknown>} work
 */
function onSubmit(id, work) {
  const form = element(id, HTMLFormElement);
  form.addEventListener('submit', (submit) => {
    submit.preventDefault();
    const { submitter } = submit;
    if (submitter instanceof HTMLButtonElement) void whileBusy(submitter, work);
  });
}

/** @param {string} id @param {() => Promise<unknown>} work */
function onClick(id, work) {
  const button = element(id, HTMLButtonElement);
  button.addEventListener('click', () => whileBusy(button, work));
}

function startTarget() {
  field.signing.addEventListener('change', showSigning);
  onSubmit('target-form', () => {
    const request = { method: 'PATCH', body: targetBody() };
    return change('/target', request, TARGET_FIELDS, 'target-problem', 'The target is saved.');
  });
  onClick('target-default', () => {
    const done = 'Events go to the target of the service.';
    return change('/target', { method: 'DELETE' }, TARGET_FIELDS, 'target-problem', done);
  });
  onClick('target-test', async () => {
    element('test', HTMLElement).replaceChildren('Sending…');
    /** @type {Result<Test>} */
    const result = await call(`/tokens/${shownId}/test`, { method: 'POST' });
    showProblems(result, TARGET_FIELDS, 'target-problem');
    if (result.ok) showTest(result.data);
    else element('test', HTMLElement).replaceChildren();
  });
}

/** @param {(address: string) => void} opener opens an address of the inbox */
export function startSender(opener) {
  open = opener;
  element('sender-address', HTMLElement).textContent = `${location.origin}/webhook`;
  for (const id of ['made-token', 'made-address']) {
    const shown = element(id, HTMLInputElement);
    copyOnClick(element(`${id}-copy`, HTMLButtonElement), shown, () => shown.value);
  }
  what.addEventListener('change', () => {
    element('rotate-secret-part', HTMLElement).hidden = what.value !== 'secret';
  });
  startTarget();
  onSubmit('rename-form', () => {
    const order_by = orderField.value.trim() || null;
    const request = { method: 'PATCH', body: { name: nameField.value.trim(), order_by } };
    const fields = { name: nameField, order_by: orderField };
    return change('', request, fields, 'sender-problem', 'Saved.');
  });
  onSubmit('rotate-form', async () => {
    const isSecret = what.value === 'secret';
    const secret = isSecret ? { signing_secret: newSecret.value } : {};
    const body = { overlap_seconds: Number(overlap.value), ...secret };
    const done = isSecret ? 'The signing secret is replaced.' : 'The token is replaced.';
    /** @type {{ token: string | null } | null} */
    const reply = await change(
      '/rotate',
      { body },
      { signing_secret: newSecret },
      'rotate-problem',
      done,
    );
    if (reply) newSecret.value = '';
    if (reply?.token) showMade(reply.token);
  });
  onClick('pending-show', async () => {
    /** @type {Result<{ secret: string, fingerprint: string }>} */
    const result = await call(`/tokens/${shownId}/pending`);
    showProblemAt('pending-problem', result.ok ? '' : result.message);
    if (result.ok) showPending(result.data.secret, result.data.fingerprint);
  });
  onSubmit('pending', async () => {
    const done = 'The signing secret is active. An earlier one stays valid for 24 hours.';
    const reply = await change('/confirm', { body: { fingerprint } }, {}, 'pending-problem', done);
    if (reply) showPending('', '');
  });
  onSubmit('revoke-form', async () => {
    const result = await call(`/tokens/${shownId}/revoke`, { method: 'POST' });
    showProblemAt('sender-problem', result.ok ? '' : result.message);
    if (result.ok) open('/inbox?view=senders');
  });
}
