import type { Database } from '../platform/db/pool.ts';
import { SOURCE_NAMES } from '../webhook/sources.ts';
import { tail } from '../webhook/inbox.ts';
import { STATUSES } from '../webhook/model.ts';
import { redeliver } from '../webhook/store/events.ts';
import type { Attempt, EventFilter, EventSummary } from '../webhook/schemas.ts';
import { findEvent, listEvents } from '../webhook/store/inbox.ts';
import { pauseDelivery, resumeDelivery } from '../webhook/store/delivery.ts';
import { choice, type Command, json, OperationFailed, option, UsageError } from './command.ts';
import { counted, requireUuid } from './database.ts';
import { forwardEvents } from './event-forward.ts';
import {
  cellsOf,
  type Columns,
  readDuration,
  printMembers,
  printRows,
  toJson,
} from './terminal.ts';
import { inWebhook } from './webhook-database.ts';

const BATCH = 1_000;
const UNDELIVERED = ['dead', 'stored', 'skipped'] as const;
type Undelivered = (typeof UNDELIVERED)[number];
const FROM_LIST = ' from gatehouse event list';
const COLUMNS: Columns<EventSummary> = {
  ID: 'id',
  RECEIVED: 'received_at',
  SOURCE: 'source',
  EVENT: 'event',
  STATUS: 'status',
  ATTEMPTS: 'total_attempts',
  'LAST ERROR': 'last_error',
};

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
      since: option(
        'TIME',
        'only events received within this time: seconds, or such as 30m, 12h, 7d or 1w',
      ),
      json,
    },
    async run(call) {
      const limit = call.text('limit') ?? '20';
      if (!/^[1-9][0-9]{0,3}$/.test(limit))
        throw new UsageError('--limit must be a whole number from 1 to 9999');
      const status = choice(call, 'status', STATUSES);
      const source = choice(call, 'source', SOURCE_NAMES);
      const age = readDuration(call, 'since');
      const filter = {
        status,
        source,
        since: age === undefined ? age : new Date(Date.now() - age * 1000),
        event: call.text('event'),
        text: call.text('text'),
        delivery_id: call.text('delivery-id'),
      };
      const events = await inWebhook(call, (database) => listAll(database, filter, Number(limit)));
      printRows(call, events, COLUMNS);
    },
  },
  {
    name: 'event show',
    positionals: 'ID',
    options: { json },
    summary: 'Show an event with its body, headers and attempts',
    async run(call) {
      const { print, printText } = call;
      const id = requireUuid(call.first, FROM_LIST);
      const found = await inWebhook(call, (database) => findEvent(database, id));
      if (!found) throw new OperationFailed('no event has this id; see: gatehouse event list');
      if (call.flag('json')) return print(toJson(found));
      const { event, attempts, headers, body, ...others } = found;
      printMembers(call, {
        ...event,
        ...others,
        ...headers,
      });
      for (const attempt of attempts) print(attemptText(attempt));
      printText(`\n${body}`);
    },
  },
  {
    name: 'event redeliver',
    positionals: '[ID…]',
    summary: 'Deliver events again: by id, or all events with a status',
    options: { status: option('STATUS', 'dead, stored or skipped') },
    async run(call) {
      const ids = [...new Set(call.positionals)];
      const status = choice(call, 'status', UNDELIVERED);
      if (ids.length > 0 === (status !== undefined))
        throw new UsageError('give event ids or --status');
      for (const id of ids) requireUuid(id, FROM_LIST);
      const count = await inWebhook(call, (database) =>
        status ? redeliverAll(database, status) : redeliver(database, ids),
      );
      if (!status && count === 0)
        throw new OperationFailed('the events are unknown or being delivered');
      call.note(
        `${counted(count, 'event')} will be delivered again, by a service that has a target.`,
      );
      if (count < ids.length) call.note('The other events are unknown or being delivered.');
    },
  },
  {
    name: 'event pause',
    summary: 'Pause delivery on every replica; events are still accepted',
    async run(call) {
      const isNew = await inWebhook(call, (database) => pauseDelivery(database, 'command'));
      return `Delivery ${isNew ? 'is' : 'was already'} paused. Attempts under way end. Resume: gatehouse event resume`;
    },
  },
  {
    name: 'event resume',
    summary: 'Resume paused delivery',
    async run(call) {
      const wasPaused = await inWebhook(call, resumeDelivery);
      return wasPaused ? 'Delivery resumed.' : 'Delivery was not paused.';
    },
  },
  {
    name: 'event tail',
    options: {
      json,
      forward: option('URL', 'send each new event to this URL; uses HTTP, with OPERATOR_TOKEN'),
    },
    summary: 'Print new webhook events, or forward them to a program, until Ctrl-C',
    async run(call) {
      const url = call.text('forward');
      const isJson = call.flag('json');
      if (url !== undefined && isJson) throw new UsageError('--json does not go with --forward');
      if (url !== undefined) return forwardEvents(url, call);
      const line = (event: EventSummary) =>
        isJson ? toJson(event) : cellsOf(event, COLUMNS).join('  ');
      await inWebhook(call, async (database) => {
        for await (const events of tail(database, async () => !call.isRead())) {
          for (const event of events) call.print(line(event));
        }
      });
    },
  },
];

async function redeliverAll(database: Database, status: Undelivered) {
  let total = 0;
  let after: string | null | undefined;
  while (after !== null) {
    const page = await listEvents(database, { status, after }, BATCH);
    const ids = page.events.map(({ id }) => id);
    total += await redeliver(database, ids);
    after = page.next;
  }
  return total;
}

/** Continues if a page ends early, because one statement reads a limited number of events. */
async function listAll(database: Database, filter: EventFilter, limit: number) {
  const events: EventSummary[] = [];
  let after: string | null | undefined;
  while (after !== null && events.length < limit) {
    const page = await listEvents(database, { ...filter, after }, limit - events.length);
    events.push(...page.events);
    after = page.next;
  }
  return events;
}

function attemptText(sent: Attempt) {
  const { run, attempt, ended_at, duration_ms, error, answer_status, target } = sent;
  const name = run === 1 ? `attempt ${attempt}` : `redelivery ${run - 1}, attempt ${attempt}`;
  const duration = duration_ms === null ? '' : `${duration_ms} ms`;
  const status = answer_status === null ? '' : `status ${answer_status}`;
  const facts = [target, duration, status].filter(Boolean).join(', ');
  return `${name}  ${new Date(ended_at).toISOString()} ${error ?? 'delivered'} ${facts}`.trimEnd();
}
