import { type Command, json, OperationFailed, option } from './command.ts';
import { counted, withDatabase } from './database.ts';
import { printRows } from './terminal.ts';
import { isUuid } from '../crypto/text.ts';
import type { Database } from '../db/pool.ts';
import { networkOf } from '../http/address.ts';
import { codeLimit } from '../identity/factors/codes.ts';
import { loginLimits } from '../identity/login.ts';
import { SCHEMA } from '../identity/schema.ts';
import { accountKey, type User } from '../identity/model.ts';
import * as settings from '../identity/settings.ts';
import { readThrottleSecret } from '../identity/store/audit.ts';
import {
  clearLimits,
  readLimits,
  type RecentFailure,
  recentFailures,
} from '../identity/store/limits.ts';
import { findAccount, findUser } from '../identity/store/users.ts';
import type { Hashing } from '../identity/users.ts';

export const inIdentity = <T>(
  work: (database: Database, hashing: Hashing) => Promise<T>,
): Promise<T> => withDatabase(settings, SCHEMA, work);

/** By id or username. */
export async function find(database: Database, name = ''): Promise<User> {
  const id = name.toLowerCase();
  const user = isUuid(id)
    ? await findUser(database, id)
    : await findAccount(database, accountKey(name));
  if (!user)
    throw new OperationFailed('there is no user with this id or name; see: gatehouse user list');
  return user;
}

export const COMMANDS: readonly Command[] = [
  {
    name: 'user unlock',
    summary: "Forget a user's failed logins and codes, so that the user can log in at once",
    positionals: 'USER',
    options: {},
    async run({ positionals: [name] }, { note }) {
      const [user, count] = await inIdentity(async (database) => {
        const found = await find(database, name);
        const limits = await limitsOf(database, await recentFailures(database, found.id));
        // The limit of a network is for all of its users.
        const own = limits.filter(({ what }) => what !== 'network').map(({ key }) => key);
        return [found, await clearLimits(database, found.id, own)] as const;
      });
      note(
        count
          ? `Unlocked user "${user.username}": ${counted(count, 'limit')} cleared.`
          : `User "${user.username}" has no failed login that counts.`,
      );
    },
  },
  {
    name: 'throttle list',
    summary: 'List the limits that count failed logins now, by user and network',
    options: { user: option('USER', 'only those of this user, by id or username'), json },
    async run(given, terminal) {
      const name = given.text('user');
      const rows = await inIdentity(async (database) => {
        const user = name === undefined ? null : await find(database, name);
        const limits = await limitsOf(database, await recentFailures(database, user?.id ?? null));
        const states = await readLimits(
          database,
          limits.map(({ key }) => key),
        );
        return states.flatMap(({ key, failures, wait }) =>
          limits
            .filter((one) => one.key.toString('hex') === key)
            .map(({ what, user, network, max }) => ({
              limit: what,
              user,
              network,
              failures,
              max,
              wait_seconds: wait,
            })),
        );
      });
      const columns = ['LIMIT', 'USER', 'NETWORK', 'FAILURES', 'OF', 'BLOCKED FOR'];
      printRows(
        given,
        terminal,
        rows,
        columns,
        ({ limit, user, network, failures, max, wait_seconds: wait }) => [
          limit,
          user,
          network,
          failures,
          max,
          wait > 0 ? `${wait} s` : null,
        ],
      );
    },
  },
];

/** Limits under names. The table stores only a digest of each, so that names come from the audit trail. */
async function limitsOf(database: Database, failures: readonly RecentFailure[]) {
  const secret = await readThrottleSecret(database);
  const limits = failures.flatMap(({ user_id: id, username: user, username_key: name, ip }) => {
    const network = networkOf(ip);
    const [pair, account, all] = loginLimits(secret, name ?? '', network);
    const ofNetwork = {
      what: 'network',
      key: all.key,
      max: all.attempts,
      user: null,
      network,
    } as const;
    if (id === null) return [ofNetwork];
    const code = codeLimit(secret, id);
    return [
      { what: 'account from network', key: pair.key, max: pair.attempts, user, network },
      { what: 'account', key: account.key, max: account.attempts, user, network: null },
      { what: 'codes', key: code.key, max: code.attempts, user, network: null },
      ofNetwork,
    ];
  });
  return [...new Map(limits.map((limit) => [limit.key.toString('hex'), limit])).values()];
}
