import { Failure } from '../platform/http/route/errors.ts';
import { list, object } from '../platform/http/route/schema.ts';
import { checkOwnPassword } from './login.ts';
import {
  auditSchema,
  keySchema,
  sessionSchema,
  userSchema,
  viewAudit,
  viewKey,
  viewSession,
  viewUser,
} from './model.ts';
import { type IdentityCall, ownUser } from './policy.ts';
import type { IdentityService } from './service.ts';
import { listKeys } from './store/keys.ts';
import { listAudit } from './store/lists.ts';
import { listSessions } from './store/sessions.ts';
import { removeAs } from './users.ts';

/** What people do with their own account as a whole. */

export const ownDataSchema = object({
  user: userSchema,
  sessions: list(sessionSchema),
  keys: list(keySchema),
  audit: list(auditSchema),
});

/** The newest of each, which are held in memory. */
const NEWEST = { page: 1, limit: 1_000 };

export async function exportOwnData({ caller }: IdentityCall, service: IdentityService) {
  const user = ownUser(caller, 'export own data');
  if (user instanceof Failure) return user;
  const [sessions, keys, audit] = await Promise.all([
    listSessions(service, NEWEST, user.id, null),
    listKeys(service.database, NEWEST, user.id),
    listAudit(service.database, NEWEST, { user: user.id }),
  ]);
  return {
    data: {
      user: viewUser(user),
      sessions: sessions.rows.map(viewSession),
      keys: keys.rows.map(viewKey),
      audit: audit.rows.map(viewAudit),
    },
  };
}

const SELF_DELETION_OFF = new Failure('forbidden', {
  message: 'The operator of this service has not allowed it: ask an administrator.',
});

/**
 * A recent sign-in has proved the second factor, if there is one; the password is asked for again.
 */
export async function deleteOneself(
  call: IdentityCall<unknown, unknown, { password: string }>,
  service: IdentityService,
) {
  const { caller, body, request } = call;
  const user = ownUser(caller, 'delete oneself');
  if (user instanceof Failure) return user;
  if (!service.selfDeletion) return SELF_DELETION_OFF;
  const checked = await checkOwnPassword(service, request, caller, user, body.password);
  if (checked instanceof Failure) return checked;
  return removeAs(call, service, user.id);
}
