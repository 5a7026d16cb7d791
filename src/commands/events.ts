import { SOURCE_NAMES } from '../webhook/sources.ts';
import { tail, viewDetails } from '../webhook/inbox.ts';
import { idsWithStatus } from '../webhook/store/admin.ts';
import { type EventSummary, findEvent, listEvents, redeliver, STATUSES } from '../webhook/store/events.ts';
import { choice, type Command, json, OperationFailed, option, UsageError } from './command.ts';
import { counted, requireUuid } from './database.ts';
import { parseDuration, printMembers, printRows, stripControlChars, textCells } from './terminal.ts';
import { withWebhook } from './webhook.ts';

const BATCH = 1_000;
const FROM_LIST = ', as in: gatehouse event list';

export const COMMANDS: readonly Command[] = [
  {
    name: 'event list',
    summary: 'List webhook events, newest first',
    options: {
      status: option('STATUS', STATUSES.join(', ')), source: option('SOURCE', "the source of the event's token"),
      event: option('NAME', 'the event name; * stands for any characters'), limit: option('N', 'how many; default 20'),
      'delivery-id': option('ID', 'the delivery id that the sender gave: webhook-id, Idempotency-Key or its own'),
      since: option('TIME', 'the greatest age: seconds, or such as 30m, 12h, 7d or 1w'), json,
    },
    async run(given, terminal) {
      const { text } = given;
      const [status, source] = [choice(given, 'status', STATUSES), choice(given, 'source', SOURCE_NAMES)];
      const [age, limit] = [text('since'), text('limit') ?? '20'];
      const since = age === undefined ? age : new Date(Date.now() - parseDuration('--since', age) * 1000);
      if (!/^[1-9][0-9]{0,3}$/.test(limit)) throw new UsageError('--limit must be a whole number from 1 to 9999');
      const filter = { status, event: text('event'), source, since, delivery: text('delivery-id'), after: undefined };
      const events = await withWebhook((database) => listEvents(database, filter, Number(limit)));
      const columns = ['ID', 'RECEIVED', 'SOURCE', 'EVENT', 'STATUS', 'ATTEMPTS', 'LAST ERROR'];
      printRows(given, terminal, events, columns, cells);
    },
  },
  {
    name: 'event show', positionals: 'ID', options: { json },
    summary: 'Show an event with its body, headers and failed attempts',
    async run(given, terminal) {
      const { positionals: [id = ''], flag } = given;
      const { print, isShown } = terminal;
      const found = await withWebhook((database) => findEvent(database, requireUuid(id, FROM_LIST)));
      if (!found) throw new OperationFailed('no event has this id; see: gatehouse event list');
      const { event, failures, headers, body, ...others } = viewDetails(found);
      if (flag('json')) return print(JSON.stringify({ event, ...others, headers, body, failures }));
      printMembers(given, terminal, { ...event, ...others, ...headers });
      for (const { attempt, failed_at, error } of failures) print(`attempt ${attempt}  ${failed_at} ${error}`);
      print(`\n${isShown ? stripControlChars(body) : body}`);
    },
  },
  {
    name: 'event redeliver', positionals: '[ID…]',
    summary: 'Deliver events again: by id, or all events with a status',
    options: { status: option('STATUS', 'dead, stored or skipped') },
    async run(given, { note }) {
      const { positionals: ids } = given;
      const status = choice(given, 'status', ['dead', 'stored', 'skipped']);
      if ((ids.length > 0) === (status !== undefined)) throw new UsageError('give event ids or --status');
      for (const id of ids) requireUuid(id, FROM_LIST);
      const count = await withWebhook(async (database) => {
        if (!status) return redeliver(database, ids);
        for (let total = 0; ; ) {
          const batch = await idsWithStatus(database, status, BATCH);
          total += await redeliver(database, batch);
          if (batch.length < BATCH) return total;
        }
      });
      if (!status && count === 0) throw new OperationFailed('the events are unknown or being delivered');
      note(`${counted(count, 'event')} will be delivered again, by a service that has a target.`);
      if (count < ids.length) note('The other events are unknown or being delivered.');
    },
  },
  {
    name: 'event tail', options: { json },
    summary: 'Print new webhook events until Ctrl-C',
    async run({ flag }, { print, isRead }) {
      const line = (event: EventSummary) =>
        flag('json') ? JSON.stringify(event) : textCells(cells(event)).join('  ');
      await withWebhook(async (database) => {
        for await (const events of tail(database, async () => !isRead())) events.map(line).forEach(print);
      });
    },
  },
];

const cells = ({ id, received_at, source, event, status, attempts, last_error }: EventSummary) =>
  [id, received_at, source, event, status, attempts, last_error];
