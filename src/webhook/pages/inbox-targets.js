/** The tokens of senders, and where the events of each go. */
import { element } from '/pages/page.js';
import { call, showProblemAt } from '/pages/inbox-api.js';
import { create, createBadge, createTime } from '/pages/inbox-format.js';

/** @import { Result } from '/pages/page.js' */

/**
 * @typedef {{
 *   id: string,
 *   name: string,
 *   source: string,
 *   target: string | null,
 *   events: string[] | null,
 *   timeout_seconds: number | null,
 *   is_signed: boolean,
 *   keep_signature: boolean,
 *   next_probe_at: string | null,
 *   refused: number,
 *   last_refusal: string | null,
 *   last_refused_at: string | null,
 * }} Sender
 */

const section = element('senders', HTMLDetailsElement);
const form = element('target-form', HTMLFormElement);
const chosen = element('target-token', HTMLSelectElement);
const field = {
  url: element('target-url', HTMLInputElement),
  events: element('target-events', HTMLInputElement),
  timeout: element('target-timeout', HTMLInputElement),
  secret: element('target-secret', HTMLInputElement),
  keep: element('target-keep', HTMLInputElement),
};

/**
 * The fields, by the member of the request that the service names.
 * @type {Readonly<Record<string, HTMLInputElement>>}
 */
const FIELDS = {
  '/url': field.url,
  '/events': field.events,
  '/timeout_seconds': field.timeout,
  '/secret': field.secret,
};

/** @param {Sender} sender */
const nameOf = ({ name, id }) => name || id;

/** @param {Sender} sender */
function targetOf({ target, events, is_signed, keep_signature, timeout_seconds }) {
  if (target === null) return 'the target of the service';
  const details = [
    events && `only ${events.join(', ')}`,
    timeout_seconds && `within ${timeout_seconds} s`,
    is_signed && 'signed',
    keep_signature && "with the sender's signature",
  ].filter(Boolean);
  return [target, ...details].join(', ');
}

/** @param {Sender} sender */
function rowOf(sender) {
  const { source, next_probe_at, refused, last_refusal, last_refused_at } = sender;
  const target = create('td', '', targetOf(sender));
  if (next_probe_at !== null) target.append(' ', createBadge('failed'));
  const refusals = create('td', '', String(refused));
  if (last_refusal !== null && last_refused_at !== null) {
    refusals.append(
      create('span', 'later', `last: ${last_refusal}, `, createTime(last_refused_at)),
    );
  }
  const cells = [create('td', '', nameOf(sender)), create('td', '', source), target, refusals];
  for (const [index, label] of ['Token', 'Source', 'Target', 'Refused in 24 h'].entries()) {
    const cell = cells[index];
    if (cell) cell.dataset.label = label;
  }
  return create('tr', '', ...cells);
}

async function load() {
  /** @type {Awaited<ReturnType<typeof call<Sender[]>>>} */
  const result = await call('/tokens');
  showProblemAt('target-problem', result.ok ? '' : result.message);
  if (!result.ok) return;
  element('sender-rows', HTMLElement).replaceChildren(...result.data.map(rowOf));
  const before = chosen.value;
  chosen.replaceChildren(
    ...result.data.map((sender) => {
      const option = create('option', '', nameOf(sender));
      option.value = sender.id;
      return option;
    }),
  );
  if (result.data.some(({ id }) => id === before)) chosen.value = before;
}

/** Says what is wrong, and leads to its field. @param {Result<unknown>} result */
function showProblem(result) {
  for (const one of Object.values(FIELDS)) one.removeAttribute('aria-invalid');
  const [first] = result.ok ? [] : result.fields;
  const wrong = FIELDS[first?.path.replace(/(?<=.)\/.*/, '') ?? ''];
  if (!first || !wrong) {
    showProblemAt('target-problem', result.ok ? '' : result.message);
    return;
  }
  showProblemAt('target-problem', `${wrong.labels?.[0]?.textContent}: ${first.message}.`);
  wrong.setAttribute('aria-invalid', 'true');
  wrong.focus();
}

/** @param {'PUT' | 'DELETE'} method @param {object} [body] */
async function change(method, body) {
  const token = chosen.selectedOptions[0]?.textContent ?? '';
  const result = await call(`/tokens/${chosen.value}/target`, body ? { method, body } : { method });
  showProblem(result);
  const done = method === 'PUT' ? `go to ${field.url.value}` : 'go to the target of the service';
  element('target-done', HTMLElement).textContent = result.ok ? `Events of ${token} ${done}.` : '';
  if (!result.ok) return;
  // The token stays chosen: the next change would otherwise be one of another token.
  const { value } = chosen;
  form.reset();
  chosen.value = value;
  await load();
}

/** Shows the tokens when they are asked for, and sets targets. */
export function startTargets() {
  form.addEventListener('submit', (submit) => {
    submit.preventDefault();
    const events = field.events.value
      .split(',')
      .map((name) => name.trim())
      .filter(Boolean);
    void change('PUT', {
      url: field.url.value,
      keep_signature: field.keep.checked,
      ...(events.length > 0 ? { events } : {}),
      ...(field.timeout.value === '' ? {} : { timeout_seconds: Number(field.timeout.value) }),
      ...(field.secret.value === '' ? {} : { secret: field.secret.value }),
    });
  });
  element('target-default', HTMLButtonElement).addEventListener('click', () => change('DELETE'));
  section.addEventListener('toggle', () => {
    if (section.open) void load();
  });
}
