import { isSource, SOURCE_NAMES } from '../webhook/sources.ts';
import { tail, viewDetails } from '../webhook/inbox.ts';
import { idsWithStatus } from '../webhook/store/admin.ts';
import { type EventSummary, findEvent, listEvents, redeliver, STATUSES } from '../webhook/store/events.ts';
import { type Command, OperationFailed, UsageError } from './command.ts';
import { json, oneLine, parseDuration, printTable, stripControlChars } from './terminal.ts';
import { option, requireUuid, withWebhook } from './webhook.ts';

const BATCH = 1_000;

export const COMMANDS: readonly Command[] = [
  {
    name: 'event list',
    summary: 'List webhook events, newest first',
    options: {
      status: option('STATUS', STATUSES.join(', ')), source: option('SOURCE', "the source of the event's token"),
      event: option('NAME', 'the event name; * stands for any characters'), limit: option('N', 'how many; default 20'),
      since: option('TIME', 'the greatest age: seconds, or as 30m, 12h or 7d'), json,
    },
    async run({ text, flag }, { print }) {
      const wrong = (problem: string) => new UsageError(`event list: ${problem}`);
      const [source, age, limit] = [text('source'), text('since'), text('limit') ?? '20'];
      const status = STATUSES.find((one) => one === text('status'));
      if (text('status') !== undefined && !status) throw wrong(`--status must be one of ${STATUSES.join(', ')}`);
      if (source !== undefined && !isSource(source)) throw wrong(`--source must be one of ${SOURCE_NAMES.join(', ')}`);
      const since = age === undefined ? age : new Date(Date.now() - parseDuration('event list: --since', age) * 1000);
      if (!/^[1-9][0-9]{0,3}$/.test(limit)) throw wrong('--limit must be a whole number from 1 to 9999');
      const filter = { status, event: text('event'), source, since, after: undefined };
      const events = await withWebhook((database) => listEvents(database, filter, Number(limit)));
      if (flag('json')) return print(JSON.stringify(events));
      printTable(print, ['ID', 'RECEIVED', 'SOURCE', 'EVENT', 'STATUS', 'ATTEMPTS', 'LAST ERROR'], events.map(cells));
    },
  },
  {
    name: 'event show', positionals: { shown: 'ID', least: 1, most: 1 }, options: { json },
    summary: 'Show an event with its body, headers and failed attempts',
    async run({ positionals: [id = ''], flag }, { print, isShown }) {
      const found = await withWebhook((database) => findEvent(database, requireUuid(id, 'event show', 'event list')));
      if (!found) throw new OperationFailed('no event has this id; see: gatehouse event list');
      const { event, failures, headers, body, ...others } = viewDetails(found);
      if (flag('json')) return print(JSON.stringify({ event, ...others, headers, body, failures }));
      const received_at = event.received_at.toISOString();
      for (const [name, value] of Object.entries({ ...event, received_at, ...others, ...headers })) {
        print(`${name.replaceAll('_', ' ').padEnd(16)} ${oneLine(String(value ?? '–'))}`);
      }
      for (const { attempt, failed_at, error } of failures) print(`attempt ${attempt}        ${failed_at} ${error}`);
      print(`\n${isShown ? stripControlChars(body) : body}`);
    },
  },
  {
    name: 'event redeliver', positionals: { shown: '[ID…]', least: 0, most: 1_000 },
    summary: 'Deliver events again: by id, or all events with a status',
    options: { status: option('STATUS', 'dead, stored or skipped') },
    async run({ positionals: ids, text }, { note }) {
      const wrong = (problem: string) => new UsageError(`event redeliver: ${problem}`);
      const status = (['dead', 'stored', 'skipped'] as const).find((one) => one === text('status'));
      if (text('status') !== undefined && !status) throw wrong('--status must be one of dead, stored, skipped');
      if ((ids.length > 0) === (status !== undefined)) throw wrong('give event ids or --status');
      for (const id of ids) requireUuid(id, 'event redeliver', 'event list');
      const count = await withWebhook(async (database) => {
        if (!status) return redeliver(database, ids);
        for (let total = 0; ; ) {
          const batch = await idsWithStatus(database, status, BATCH);
          total += await redeliver(database, batch);
          if (batch.length < BATCH) return total;
        }
      });
      if (!status && count === 0) throw new OperationFailed('the events are unknown or being delivered');
      note(`${count} event${count === 1 ? '' : 's'} will be delivered again, by a service that has a target.`);
      if (count < ids.length) note('The other events are unknown or being delivered.');
    },
  },
  {
    name: 'event tail', options: { json },
    summary: 'Print new webhook events until Ctrl-C',
    async run({ flag }, { print, isRead }) {
      const line = (event: EventSummary) =>
        flag('json') ? JSON.stringify(event) : oneLine(cells(event).join('  '));
      await withWebhook(async (database) => {
        for await (const events of tail(database, async () => !isRead())) events.map(line).forEach(print);
      });
    },
  },
];

const cells = ({ id, received_at, source, event, status, attempts, last_error }: EventSummary): string[] =>
  [id, received_at.toISOString(), source, event, status, String(attempts), last_error ?? '–'];
