import { checked, inWebhook } from './webhook.ts';
import { stripControlChars, json, oneLine, printTable, parseDuration } from './administration.ts';
import { type Command, OperationFailed, UsageError } from './command.ts';
import { isSource, SOURCE_NAMES } from '../webhook/sources.ts';
import { tail, viewDetails, viewLine } from '../webhook/inbox.ts';
import { type EventLine, findEvent, idsWithStatus, listEvents, redeliver, STATUSES } from '../webhook/store/events.ts';

const NO_EVENT = 'there is no event with this id; see: gatehouse event list';
/** Events at a time, where all of a status are driven again. */
const BATCH = 1_000;

export const COMMANDS: readonly Command[] = [
  {
    name: 'event list',
    summary: 'List the webhook events, newest first',
    options: {
      status: { type: 'string', value: 'STATUS', help: STATUSES.join(', ') },
      event: { type: 'string', value: 'NAME', help: 'the kind of event; * stands for anything' },
      source: { type: 'string', value: 'SOURCE', help: 'the source of its token' },
      since: { type: 'string', value: 'TIME', help: 'not older than this: seconds, or as 30m, 12h or 7d' },
      limit: { type: 'string', value: 'N', help: 'how many; 20 if left out' },
      json,
    },
    async run({ text, flag }, { print }) {
      const status = STATUSES.find((one) => one === text('status'));
      if (text('status') !== undefined && !status) throw new UsageError(`event list: status must be one of ${STATUSES.join(', ')}`);
      const source = text('source');
      if (source !== undefined && !isSource(source)) throw new UsageError(`event list: source must be one of ${SOURCE_NAMES.join(', ')}`);
      const ago = text('since');
      const since = ago === undefined ? undefined : new Date(Date.now() - parseDuration('event list: --since', ago) * 1000);
      const limit = text('limit') ?? '20';
      if (!/^[1-9][0-9]{0,3}$/.test(limit)) throw new UsageError('event list: --limit must be a whole number from 1 to 9999');
      const filter = { status, event: text('event'), source, since, after: undefined };
      const events = await inWebhook((database) => listEvents(database, filter, Number(limit)));
      if (flag('json')) return print(JSON.stringify(events.map(viewLine)));
      printTable(print, ['ID', 'RECEIVED', 'SOURCE', 'EVENT', 'STATUS', 'ATTEMPTS', 'LAST ERROR'], events.map(cells));
    },
  },
  {
    name: 'event show',
    summary: 'Show an event: its body, its headers, and every attempt that failed',
    positionals: { shown: 'ID', least: 1, most: 1 },
    options: { json },
    async run({ positionals: [id = ''], flag }, { print, isShown }) {
      const found = await inWebhook((database) => findEvent(database, checked(id, 'event show', 'event list')));
      if (!found) throw new OperationFailed(NO_EVENT);
      const { event, failures, headers, body, ...facts } = viewDetails(found);
      if (flag('json')) return print(JSON.stringify({ event, ...facts, headers, body, failures }));
      for (const [name, value] of Object.entries({ ...event, ...facts, ...headers })) print(`${name.replaceAll('_', ' ').padEnd(16)} ${oneLine(String(value ?? '–'))}`);
      for (const { attempt, failed_at, error } of failures) print(`attempt ${attempt}        ${failed_at} ${error}`);
      print(`\n${isShown ? stripControlChars(body) : body}`);
    },
  },
  {
    name: 'event redeliver',
    summary: 'Deliver events again: those named, or all of a status',
    positionals: { shown: '[ID…]', least: 0, most: 1_000 },
    options: { status: { type: 'string', value: 'STATUS', help: 'dead, stored or skipped' } },
    async run({ positionals: ids, text }, { note }) {
      const status = (['dead', 'stored', 'skipped'] as const).find((one) => one === text('status'));
      if (text('status') !== undefined && !status) throw new UsageError('event redeliver: status must be one of dead, stored, skipped');
      if ((ids.length > 0) === (status !== undefined)) throw new UsageError('event redeliver takes the ids of events, or --status');
      for (const id of ids) checked(id, 'event redeliver', 'event list');
      const count = await inWebhook(async (database) => {
        if (!status) return redeliver(database, ids);
        let all = 0;
        for (;;) {
          const some = await idsWithStatus(database, status, BATCH);
          all += some.length === 0 ? 0 : await redeliver(database, some);
          if (some.length < BATCH) return all;
        }
      });
      if (status === undefined && count === 0) throw new OperationFailed('none of these can be delivered again: unknown, or under way');
      note(`${count} event${count === 1 ? '' : 's'} will be delivered again, by a service that is set to deliver.`);
      if (count < ids.length) note('The others are unknown, or under way.');
    },
  },
  {
    name: 'event tail',
    summary: 'Print the webhook events as they come, until Ctrl-C',
    options: { json },
    async run({ flag }, { print, isRead }) {
      await inWebhook(async (database) => {
        for await (const events of tail(database, async () => !isRead())) {
          for (const event of events) print(flag('json') ? JSON.stringify(viewLine(event)) : oneLine(cells(event).join('  ')));
        }
      });
    },
  },
];

const cells = (event: EventLine): string[] => [event.id, event.received_at.toISOString(), event.source, event.event, event.status, String(event.attempts), event.last_error ?? '–'];
