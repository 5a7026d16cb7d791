import { randomToken } from '../crypto/token.ts';
import { takeNamedLock } from '../db/lock.ts';
import type { ServiceContext } from '../runtime/context.ts';
import { SCHEMA } from './schema.ts';
import type { IdentityService } from './service.ts';
import type { IdentitySettings } from './settings.ts';
import { COMMAND_LINE } from './store/audit.ts';
import { anyUserExists, insertUser } from './store/users.ts';
import { hashOf } from './users.ts';

const CHANGE_SOON =
  'identity: change this password within 24 hours, or it expires; to set another, run: gatehouse user password NAME';

/** Creates the first super administrator, if there is no user. Loaded only if there was none at the start. */
export async function createFirstAdministrator(
  { username, email, password }: IdentitySettings['admin'],
  { database, passwords }: IdentityService,
  { announce, handOut }: ServiceContext,
): Promise<void> {
  const made = randomToken();
  const values = {
    username,
    email,
    first_name: '',
    last_name: '',
    enabled: true,
    verified: true,
    super_admin: true,
    password_hash: await hashOf(password ?? made, { passwords }),
    password_generated: password === null,
  };
  // Replicas that start together run this one after the other, and all but the first find a user.
  const shown = await database.transaction(async (sql) => {
    await takeNamedLock(sql, SCHEMA.name, 'first administrator');
    if (await anyUserExists(sql)) return null;
    await insertUser(sql, COMMAND_LINE, values);
    // Handed out before the commit: without the password, the administrator would be of no use.
    if (password !== null) return 'the password of ADMIN_PASSWORD';
    return `password ${await handOut('admin-password', made)}\n${CHANGE_SOON}`;
  });
  if (shown !== null)
    announce(`identity: created the first administrator "${username}" with ${shown}`);
}
