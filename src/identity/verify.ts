import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import { type Caller, forbidden, may } from './policy.ts';
import { headerValue } from './rules.ts';

/**
 * For a proxy that asks, before it lets a request through to another program, who sends it. Every header is always there,
 * if need be empty, so that a proxy overwrites what the client may have invented (ASVS 4.1.3). Some versions of Caddy do
 * not copy an empty one (CVE-2026-30851): they must remove the client's first, as FORWARD-AUTH.md shows.
 */
export async function verify({ caller, query }: Call<Caller, unknown, { require: 'super_admin' | undefined }, null>): Promise<Reply<null> | Failure<'forbidden'>> {
  const { session, key, user } = caller;
  if (!may(caller, 'pass a forward authentication')) return forbidden(caller);
  if (query.require === 'super_admin' && user?.super_admin !== true) return forbidden(caller);
  const headers = {
    'X-Auth-User-Id': user?.id ?? '',
    'X-Auth-Username': headerValue(user?.username ?? ''),
    'X-Auth-Email': headerValue(user?.email ?? ''),
    'X-Auth-Super-Admin': String(user?.super_admin ?? false),
    'X-Auth-Session-Id': session?.id ?? '',
    'X-Auth-Key-Id': key?.id ?? '',
  };
  return { data: null, headers };
}
