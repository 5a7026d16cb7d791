import { type Caller, type IdentityCall, forbidden, TEMPORARY_PASSWORD } from './policy.ts';

/** Forward authentication for a proxy. */
export async function forwardAuth({
  caller,
  query,
}: IdentityCall<unknown, { require: 'super_admin' | undefined }>) {
  if (caller.session?.hasTemporaryPassword) return TEMPORARY_PASSWORD;
  const isAdmin = caller.user?.super_admin === true;
  if (query.require === 'super_admin' && !isAdmin) return forbidden(caller);
  return { data: null, headers: callerHeaders(caller) };
}

/**
 * Every header is always present, empty if need be, so that the proxy overwrites what the client
 * may have sent (ASVS 4.1.3). Some versions of Caddy do not copy an empty header (CVE-2026-30851)
 * and must remove the client's first.
 */
export const callerHeaders = ({ session, key, user }: Caller) => ({
  'X-Auth-User-Id': user?.id ?? '',
  'X-Auth-Username': headerValue(user?.username ?? ''),
  'X-Auth-Email': headerValue(user?.email ?? ''),
  'X-Auth-Super-Admin': String(user?.super_admin ?? false),
  'X-Auth-Session-Id': session?.id ?? '',
  'X-Auth-Key-Id': key?.id ?? '',
});

/**
 * Percent-encodes all but ASCII, and what separates or quotes values, such as `(`.
 * `decodeURIComponent` reads it.
 */
export const headerValue = (name: string) =>
  name.replace(/[^\w .@+!#$&'*/=?^`{|}~-]/gu, (character) =>
    Buffer.from(character).toString('hex').toUpperCase().replace(/../g, '%$&'),
  );
