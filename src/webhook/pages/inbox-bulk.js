/** Redelivers the selected events, or all that match, after a confirmation with their number. */
import { element } from '/pages/page.js';
import { call } from '/pages/inbox-api.js';
import { counted } from '/pages/inbox-format.js';
import { apiFilter } from '/pages/inbox-filter.js';
import { refreshNow, selected, unselect } from '/pages/inbox-list.js';
import { forgetCounts } from '/pages/inbox-state.js';

const bulk = element('bulk', HTMLElement);
const bulkText = element('bulk-text', HTMLElement);
const bulkYes = element('bulk-yes', HTMLButtonElement);
const bulkNo = element('bulk-no', HTMLButtonElement);
/** The last loop over batches. Another one, or "Cancel", ends it. */
let loop = { isCancelled: false };

/** What "Redeliver" of the confirmation does. @type {() => Promise<void>} */
let confirmed = async () => {};

/** @param {string} question @param {string} answer @param {() => Promise<void>} action */
function ask(question, answer, action) {
  bulkText.textContent = question;
  bulkYes.textContent = answer;
  bulkYes.hidden = answer === '';
  bulkYes.disabled = false;
  bulkNo.textContent = answer === '' ? 'Close' : 'Cancel';
  confirmed = action;
  bulk.hidden = false;
  (answer === '' ? bulkText : bulkYes).focus();
}

function beginLoop() {
  loop.isCancelled = true;
  loop = { isCancelled: false };
  return loop;
}

export function closeBulk() {
  loop.isCancelled = true;
  bulk.hidden = true;
}

/** @typedef {{ matched: number, redelivered: number, next: string | null }} Batch */
/**
 * Counts or redelivers all events of a filter, batch by batch.
 * @param {typeof loop} own @param {object} filter @param {boolean} dry_run
 * @param {(count: number) => void} report
 * @returns {Promise<number | string>} how many, or what went wrong
 */
async function forAll(own, filter, dry_run, report) {
  let total = 0;
  for (let after = ''; ;) {
    /** @type {Awaited<ReturnType<typeof call<Batch>>>} */
    const result = await call('/events/redeliver', {
      body: { filter, dry_run, ...(after === '' ? {} : { after }) },
    });
    if (!result.ok) return result.message;
    total += dry_run ? result.data.matched : result.data.redelivered;
    if (own.isCancelled) return total;
    report(total);
    if (result.data.next === null) return total;
    after = result.data.next;
  }
}

element('again-all', HTMLButtonElement).addEventListener('click', async () => {
  // What arrives from now on is not included.
  const filter = { ...apiFilter(), until: new Date().toISOString() };
  ask('Counting the events that match…', '', async () => {});
  const counting = beginLoop();
  const count = await forAll(counting, filter, true, (so) => {
    bulkText.textContent = `${counted(so, 'event')} so far…`;
  });
  if (counting.isCancelled) return;
  if (typeof count === 'string') return ask(count, '', async () => {});
  if (count === 0) return ask('No event matches.', '', async () => {});
  ask(
    `Redeliver ${counted(count, 'event')}? Each is sent to the target again.`,
    `Redeliver ${counted(count, 'event')}`,
    async () => {
      const report = (/** @type {number} */ done) => {
        bulkText.textContent = `${done} of ${counted(count, 'event')}…`;
      };
      const redelivering = beginLoop();
      const done = await forAll(redelivering, filter, false, report);
      forgetCounts();
      void refreshNow();
      if (loop !== redelivering) return;
      ask(
        typeof done === 'string' ? done : `${counted(done, 'event')} will be delivered again.`,
        '',
        async () => {},
      );
    },
  );
});
element('again-selected', HTMLButtonElement).addEventListener('click', () => {
  // A count that is still running would replace the question by its own.
  beginLoop();
  const ids = [...selected];
  const answer = `Redeliver ${counted(ids.length, 'event')}`;
  ask(`${answer}? Each is sent to the target again.`, answer, async () => {
    /** @type {Awaited<ReturnType<typeof call<Batch>>>} */
    const result = await call('/events/redeliver', { body: { ids } });
    unselect();
    const done = result.ok
      ? `${counted(result.data.redelivered, 'event')} will be delivered again.`
      : result.message;
    ask(done, '', async () => {});
    forgetCounts();
    void refreshNow();
  });
});
bulkYes.addEventListener('click', () => {
  bulkText.focus();
  // Not hidden: "Cancel" would take its place below the second click of a double click.
  bulkYes.disabled = true;
  void confirmed();
});
bulkNo.addEventListener('click', closeBulk);
