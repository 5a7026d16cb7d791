import { type Command, json, option } from './command.ts';
import { printRows } from './terminal.ts';
import { ALL, idOf, inIdentity, readOptions } from './users.ts';
import { object, oneOf, optional } from '../platform/http/route/schema.ts';
import { isActive, viewSession } from '../identity/model.ts';
import { listSessions } from '../identity/store/sessions.ts';

const filter = object({ active: optional(oneOf('true', 'false')) });

export const SESSION_COMMANDS: readonly Command[] = [
  {
    name: 'session list',
    summary: 'List the sessions, newest first',
    options: {
      user: option('USER', 'only the sessions of this user, by id, username or e-mail address'),
      active: option('true|false', 'only active sessions, or only those that have ended'),
      json,
    },
    async run(call) {
      const { active } = readOptions(filter, call);
      const { rows } = await inIdentity(call, async (database, { idleSeconds }) => {
        const userId = await idOf(database, call);
        const isWanted = active === undefined ? null : active === 'true';
        return listSessions({ database, idleSeconds }, ALL, userId, isWanted);
      });
      printRows(
        call,
        rows,
        {
          ID: 'id',
          USER: ({ user, user_id }) => user.username || user_id,
          CREATED: 'created_at',
          'LAST SEEN': 'last_seen_at',
          EXPIRES: 'expires_at',
          IP: 'ip',
          STATE: (session) => (isActive(session) ? 'active' : 'ended'),
        },
        viewSession,
      );
    },
  },
];
