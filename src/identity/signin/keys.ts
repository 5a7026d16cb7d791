import { Failure } from '../../http/errors.ts';
import { readClock } from '../factors/store.ts';
import { create, revoke } from '../keys.ts';
import { isUsable } from '../model.ts';
import type { PortalService } from '../service.ts';
import { listKeys } from '../store/keys.ts';
import type { Visit } from './guards.ts';
import { type Message, page, PAGE_ROWS, pager, render, tryAgain, utc } from './pages.ts';

/** The person's API keys. The handlers of the API decide who may do what, and write the trail. */
export async function showKeys(
  { caller, query }: Visit<unknown, { page: number }>, { database }: PortalService, message: Message = null,
) {
  const { rows, total } = await listKeys(database, { ...query, limit: PAGE_ROWS }, caller.user.id);
  const keys = rows.map((key) => {
    const used = key.last_used_at ? `last used ${utc(key.last_used_at)}` : 'never used';
    const end = key.expires_at ? `expires ${utc(key.expires_at)}` : 'never expires';
    const state = render('key-ended', { state: key.revoked ? 'Revoked' : 'Expired' });
    return render('key', {
      name: key.name || 'Without a name', prefix: key.key_prefix,
      about: `created ${utc(key.created_at)} by ${key.created_by_username ?? 'the command line'}, ${used}, ${end}`,
      end: isUsable(key) ? render('key-revoke', { id: key.id }) : state,
    });
  });
  if (keys.length === 0) keys.push(render('no-key'));
  return page('API keys', render('keys', { keys, pages: pager('/account/keys?page=', query.page, total) }), message);
}

const onFirst = (call: Visit) => ({ ...call, query: { page: 1 } });

export const LIFETIMES = ['30', '90', '365', 'never'] as const;
type NewKey = Readonly<{ name: string; days: (typeof LIFETIMES)[number] }>;

export async function createKey(call: Visit<NewKey>, service: PortalService) {
  const { name, days } = call.body;
  const seconds = (await readClock(service.database)) + Number(days) * 86_400;
  const wanted = { name, user_id: undefined, expires_at: days === 'never' ? null : new Date(seconds * 1000) };
  const created = await create({ ...call, body: wanted }, service);
  if (created instanceof Failure) return tryAgain(created, (message) => showKeys(onFirst(call), service, message));
  return page('Your new API key', render('new-key', { key: created.data.key }));
}

export async function revokeKey(call: Visit<{ key_id: string }>, service: PortalService) {
  const revoked = await revoke({ ...call, path: call.body, body: null }, service);
  return revoked instanceof Failure ? revoked : showKeys(onFirst(call), service);
}
