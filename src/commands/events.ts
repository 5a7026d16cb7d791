import type { Database } from '../db/pool.ts';
import { SOURCE_NAMES } from '../webhook/sources.ts';
import { tail, viewDetails } from '../webhook/inbox.ts';
import { idsWithStatus } from '../webhook/store/admin.ts';
import { redeliver, STATUSES } from '../webhook/store/events.ts';
import {
  type Attempt,
  type EventFilter,
  type EventSummary,
  findEvent,
  listEvents,
} from '../webhook/store/inbox.ts';
import { pauseDelivery, resumeDelivery } from '../webhook/store/delivery.ts';
import { choice, type Command, json, OperationFailed, option, UsageError } from './command.ts';
import { counted, requireUuid } from './database.ts';
import {
  oneLine,
  parseDuration,
  printMembers,
  printRows,
  stripControlChars,
  textCells,
} from './terminal.ts';
import { withWebhook } from './webhook.ts';

const BATCH = 1_000;
const FROM_LIST = ' from gatehouse event list';

export const COMMANDS: readonly Command[] = [
  {
    name: 'event list',
    summary: 'List webhook events, newest first',
    options: {
      status: option('STATUS', STATUSES.join(', ')),
      source: option('SOURCE', "the source of the event's token"),
      event: option('NAME', 'the event name; * stands for any characters'),
      limit: option('N', 'how many; default 20'),
      'delivery-id': option(
        'ID',
        'the delivery id that the sender gave: webhook-id, Idempotency-Key or its own',
      ),
      text: option('TEXT', 'a text in the body, as it was sent'),
      since: option('TIME', 'the greatest age: seconds, or such as 30m, 12h, 7d or 1w'),
      json,
    },
    async run(given, terminal) {
      const { text } = given;
      const [status, source] = [
        choice(given, 'status', STATUSES),
        choice(given, 'source', SOURCE_NAMES),
      ];
      const [age, limit] = [text('since'), text('limit') ?? '20'];
      const since =
        age === undefined ? age : new Date(Date.now() - parseDuration('--since', age) * 1000);
      if (!/^[1-9][0-9]{0,3}$/.test(limit))
        throw new UsageError('--limit must be a whole number from 1 to 9999');
      const fixed = { status, source, since, until: undefined, event: text('event') };
      const filter = { ...fixed, text: text('text'), delivery_id: text('delivery-id') };
      const events = await withWebhook((database) => listAll(database, filter, Number(limit)));
      const columns = ['ID', 'RECEIVED', 'SOURCE', 'EVENT', 'STATUS', 'ATTEMPTS', 'LAST ERROR'];
      printRows(given, terminal, events, columns, cells);
    },
  },
  {
    name: 'event show',
    positionals: 'ID',
    options: { json },
    summary: 'Show an event with its body, headers and attempts',
    async run(given, terminal) {
      const {
        positionals: [id = ''],
        flag,
      } = given;
      const { print, isShown } = terminal;
      const found = await withWebhook((database) =>
        findEvent(database, requireUuid(id, FROM_LIST)),
      );
      if (!found) throw new OperationFailed('no event has this id; see: gatehouse event list');
      const { event, attempts, headers, body, ...others } = viewDetails(found);
      if (flag('json')) return print(JSON.stringify({ event, ...others, headers, body, attempts }));
      printMembers(given, terminal, { ...event, ...others, ...headers });
      attempts.map(attemptLine).forEach(print);
      print(`\n${isShown ? stripControlChars(body) : body}`);
    },
  },
  {
    name: 'event redeliver',
    positionals: '[ID…]',
    summary: 'Deliver events again: by id, or all events with a status',
    options: { status: option('STATUS', 'dead, stored or skipped') },
    async run(given, { note }) {
      const { positionals: ids } = given;
      const status = choice(given, 'status', ['dead', 'stored', 'skipped']);
      if (ids.length > 0 === (status !== undefined))
        throw new UsageError('give event ids or --status');
      for (const id of ids) requireUuid(id, FROM_LIST);
      const count = await withWebhook(async (database) => {
        if (!status) return redeliver(database, ids);
        for (let total = 0; ;) {
          const batch = await idsWithStatus(database, status, BATCH);
          total += await redeliver(database, batch);
          if (batch.length < BATCH) return total;
        }
      });
      if (!status && count === 0)
        throw new OperationFailed('the events are unknown or being delivered');
      note(`${counted(count, 'event')} will be delivered again, by a service that has a target.`);
      if (count < ids.length) note('The other events are unknown or being delivered.');
    },
  },
  {
    name: 'event pause',
    options: {},
    summary: 'Pause delivery on every replica; events are still accepted',
    async run(_given, { note }) {
      const isNew = await withWebhook((database) => pauseDelivery(database, 'command'));
      note(
        `Delivery ${isNew ? 'is' : 'was already'} paused. Attempts under way end. Resume: gatehouse event resume`,
      );
    },
  },
  {
    name: 'event resume',
    options: {},
    summary: 'Resume paused delivery',
    async run(_given, { note }) {
      const wasPaused = await withWebhook(resumeDelivery);
      note(wasPaused ? 'Delivery resumed.' : 'Delivery was not paused.');
    },
  },
  {
    name: 'event tail',
    options: { json },
    summary: 'Print new webhook events until Ctrl-C',
    async run({ flag }, { print, isRead }) {
      const line = (event: EventSummary) =>
        flag('json') ? JSON.stringify(event) : textCells(cells(event)).join('  ');
      await withWebhook(async (database) => {
        for await (const events of tail(database, async () => !isRead()))
          events.map(line).forEach(print);
      });
    },
  },
];

/** Continues if a page ends early, because one statement reads a limited number of events. */
async function listAll(
  database: Database,
  filter: Omit<EventFilter, 'after'>,
  limit: number,
): Promise<EventSummary[]> {
  const events: EventSummary[] = [];
  for (let after: string | null | undefined; after !== null && events.length < limit;) {
    const page = await listEvents(database, { ...filter, after }, limit - events.length);
    events.push(...page.events);
    after = page.next;
  }
  return events;
}

function attemptLine({
  run,
  attempt,
  ended_at,
  duration_ms,
  error,
  answer_status,
}: Attempt): string {
  const status = answer_status === null ? '' : `status ${answer_status}`;
  const facts = [duration_ms === null ? '' : `${duration_ms} ms`, status];
  const name = `${run === 1 ? '' : `redelivery ${run - 1}, `}attempt ${attempt}`;
  return oneLine(
    [`${name} `, ended_at, error ?? 'delivered', facts.filter(Boolean).join(', ')]
      .join(' ')
      .trimEnd(),
  );
}

const cells = ({ id, received_at, source, event, status, attempts, last_error }: EventSummary) => [
  id,
  received_at,
  source,
  event,
  status,
  attempts,
  last_error,
];
