import { isSource, SOURCE_NAMES } from '../webhook/sources.ts';
import { tail, viewDetails, viewSummary } from '../webhook/inbox.ts';
import { type EventSummary, findEvent, idsWithStatus, listEvents, redeliver, STATUSES } from '../webhook/store/events.ts';
import { json, oneLine, parseDuration, printTable, stripControlChars } from './administration.ts';
import { type Command, OperationFailed, UsageError } from './command.ts';
import { requireUuid, withWebhook } from './webhook.ts';

const NO_EVENT = 'no event has this id; see: gatehouse event list';
/** Events of one statement, with --status. */
const BATCH = 1_000;

export const COMMANDS: readonly Command[] = [
  {
    name: 'event list',
    summary: 'List webhook events, newest first',
    options: {
      status: { type: 'string', value: 'STATUS', help: STATUSES.join(', ') },
      event: { type: 'string', value: 'NAME', help: 'the event name; * stands for any characters' },
      source: { type: 'string', value: 'SOURCE', help: "the source of the event's token" },
      since: { type: 'string', value: 'TIME', help: 'the greatest age: seconds, or as 30m, 12h or 7d' },
      limit: { type: 'string', value: 'N', help: 'how many; default 20' },
      json,
    },
    async run({ text, flag }, { print }) {
      const status = STATUSES.find((one) => one === text('status'));
      if (text('status') !== undefined && !status) {
        throw new UsageError(`event list: --status must be one of ${STATUSES.join(', ')}`);
      }
      const source = text('source');
      if (source !== undefined && !isSource(source)) {
        throw new UsageError(`event list: --source must be one of ${SOURCE_NAMES.join(', ')}`);
      }
      const age = text('since');
      const since = age === undefined ? undefined : new Date(Date.now() - parseDuration('event list: --since', age) * 1000);
      const limit = text('limit') ?? '20';
      if (!/^[1-9][0-9]{0,3}$/.test(limit)) throw new UsageError('event list: --limit must be a whole number from 1 to 9999');
      const filter = { status, event: text('event'), source, since, after: undefined };
      const events = await withWebhook((database) => listEvents(database, filter, Number(limit)));
      if (flag('json')) return print(JSON.stringify(events.map(viewSummary)));
      printTable(print, ['ID', 'RECEIVED', 'SOURCE', 'EVENT', 'STATUS', 'ATTEMPTS', 'LAST ERROR'], events.map(cells));
    },
  },
  {
    name: 'event show',
    summary: 'Show an event with its body, headers and failed attempts',
    positionals: { shown: 'ID', least: 1, most: 1 },
    options: { json },
    async run({ positionals: [id = ''], flag }, { print, isShown }) {
      const found = await withWebhook((database) => findEvent(database, requireUuid(id, 'event show', 'event list')));
      if (!found) throw new OperationFailed(NO_EVENT);
      const { event, failures, headers, body, ...others } = viewDetails(found);
      if (flag('json')) return print(JSON.stringify({ event, ...others, headers, body, failures }));
      for (const [name, value] of Object.entries({ ...event, ...others, ...headers })) {
        print(`${name.replaceAll('_', ' ').padEnd(16)} ${oneLine(String(value ?? '–'))}`);
      }
      for (const { attempt, failed_at, error } of failures) print(`attempt ${attempt}        ${failed_at} ${error}`);
      print(`\n${isShown ? stripControlChars(body) : body}`);
    },
  },
  {
    name: 'event redeliver',
    summary: 'Deliver events again: by id, or all events with a status',
    positionals: { shown: '[ID…]', least: 0, most: 1_000 },
    options: { status: { type: 'string', value: 'STATUS', help: 'dead, stored or skipped' } },
    async run({ positionals: ids, text }, { note }) {
      const status = (['dead', 'stored', 'skipped'] as const).find((one) => one === text('status'));
      if (text('status') !== undefined && !status) {
        throw new UsageError('event redeliver: --status must be one of dead, stored, skipped');
      }
      if ((ids.length > 0) === (status !== undefined)) throw new UsageError('event redeliver takes event ids or --status');
      for (const id of ids) requireUuid(id, 'event redeliver', 'event list');
      const count = await withWebhook(async (database) => {
        if (!status) return redeliver(database, ids);
        let total = 0;
        for (;;) {
          const batch = await idsWithStatus(database, status, BATCH);
          if (batch.length > 0) total += await redeliver(database, batch);
          if (batch.length < BATCH) return total;
        }
      });
      if (!status && count === 0) throw new OperationFailed('the events are unknown or being delivered');
      note(`${count} event${count === 1 ? '' : 's'} will be delivered again, by a service that has a target.`);
      if (count < ids.length) note('The other events are unknown or being delivered.');
    },
  },
  {
    name: 'event tail',
    summary: 'Print new webhook events until Ctrl-C',
    options: { json },
    async run({ flag }, { print, isRead }) {
      const line = (event: EventSummary) =>
        flag('json') ? JSON.stringify(viewSummary(event)) : oneLine(cells(event).join('  '));
      await withWebhook(async (database) => {
        for await (const events of tail(database, async () => !isRead())) for (const event of events) print(line(event));
      });
    },
  },
];

const cells = ({ id, received_at, source, event, status, attempts, last_error }: EventSummary): string[] =>
  [id, received_at.toISOString(), source, event, status, String(attempts), last_error ?? '–'];
