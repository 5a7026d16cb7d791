import type { Database } from '../platform/db/pool.ts';
import { listActive } from '../webhook/senders.ts';
import { grantEmit, listEmitters, revokeEmit, rightsOf } from '../webhook/store/outbox.ts';
import { type Command, type Invocation, json, OperationFailed, requiredOption } from './command.ts';
import { printRows } from './terminal.ts';
import { inWebhook } from './webhook-database.ts';

const TOKEN = {
  token: requiredOption('TOKEN', 'the name or the id of the token of a sender'),
} as const;

/** @returns the only active token of a sender with this name or id */
async function findToken(database: Database, call: Invocation) {
  const given = call.text('token') ?? '';
  const found = (await listActive(database)).filter(({ id, name }) => [id, name].includes(given));
  const [only] = found;
  if (only && found.length === 1) return only;
  const problem = only ? 'more than one active sender has' : 'no active sender has';
  throw new OperationFailed(
    `${problem} the name or id ${JSON.stringify(given)}; see: gatehouse token list`,
  );
}

/** Which roles of PostgreSQL may store events with `webhook.emit`. */
export const OUTBOX_COMMANDS: readonly Command[] = [
  {
    name: 'outbox grant',
    positionals: 'ROLE',
    summary: 'Let a role of PostgreSQL emit events for a token, and do nothing else',
    options: TOKEN,
    run: (call) =>
      inWebhook(call, async (database) => {
        const { id, name, target } = await findToken(database, call);
        const role = await rightsOf(database, call.first);
        if (!role)
          throw new OperationFailed(
            `there is no role ${JSON.stringify(call.first)}; make one with: create role NAME login`,
          );
        if (role.rights !== null)
          throw new OperationFailed(
            `this role can ${role.rights} in webhook; choose one without rights there`,
          );
        await grantEmit(database, call.first, id);
        if (!target) call.note('The token has no target of its own: events go to the default one.');
        return `The role ${call.first} may emit events for token "${name}" (${id}).`;
      }),
  },
  {
    name: 'outbox revoke',
    positionals: 'ROLE',
    summary: 'Take that right back, at once; its events that are stored are still delivered',
    options: TOKEN,
    run: (call) =>
      inWebhook(call, async (database) => {
        const given = call.text('token');
        const granted = (await listEmitters(database)).filter(
          ({ role, token, token_id }) =>
            role === call.first && (given === token || given === token_id),
        );
        if (granted.length === 0)
          throw new OperationFailed('the role has no such right; see: gatehouse outbox list');
        for (const { token_id } of granted) await revokeEmit(database, call.first, token_id);
        return `The role ${call.first} may not emit events for this token any more.`;
      }),
  },
  {
    name: 'outbox list',
    summary: 'List the roles that may emit events, and for which tokens',
    options: { json },
    run: async (call) =>
      printRows(call, await inWebhook(call, listEmitters), {
        ROLE: 'role',
        TOKEN: 'token',
        'TOKEN ID': 'token_id',
        GRANTED: 'granted_at',
        STATE: 'state',
      }),
  },
];
