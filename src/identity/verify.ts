import {
  type Members,
  queryParameters,
  type Schema,
  type Values,
} from '../platform/http/route/schema.ts';
import { ruleForm } from './rules.ts';
import { type Caller, type IdentityCall, forbidden, may, TEMPORARY_PASSWORD } from './policy.ts';

/**
 * What a rule requires, as often as it requires something. Unknown parameters and values are
 * rejected, because a misspelled `require` must not admit everyone.
 * @param kinds that `require` may name, besides groups and scopes
 */
export function verifyParameters<M extends Members>(
  kinds: readonly string[],
  members: M,
): Schema<Values<M> & Rule> {
  const others = queryParameters(members);
  const form = ruleForm(kinds);
  const description = `${kinds.join(', ')}, group:NAME or scope:NAME`;
  const items = { type: 'string', pattern: form.source, description };
  return {
    jsonSchema: {
      ...others.jsonSchema,
      properties: {
        require: { type: 'array', items, uniqueItems: true },
        ...others.jsonSchema.properties,
      },
    },
    read(input, at, reject) {
      const query = new URLSearchParams(input instanceof URLSearchParams ? input : '');
      const require = query.getAll('require');
      query.delete('require');
      const values = others.read(query, at, reject);
      const isDoubled = new Set(require).size < require.length;
      if (isDoubled || !require.every((kind) => form.test(kind)))
        return reject('require', `must be ${description}`);
      return values && { ...values, require };
    },
  };
}

type Rule = Readonly<{ require: readonly string[] }>;

/** Groups of the user, or of a key without one. */
const groupsOf = ({ user, key }: Caller) => user?.groups ?? key?.groups ?? [];

const namedBy = (prefix: 'group:' | 'scope:', require: readonly string[]) =>
  require.filter((kind) => kind.startsWith(prefix)).map((kind) => kind.slice(prefix.length));

/**
 * One of several groups is sufficient, and every scope is needed. Only a key has scopes: what a
 * person may do, a program decides by user and group.
 */
export function isAdmitted(caller: Caller, { require }: Rule) {
  if (!may(caller, 'pass forward authentication')) return false;
  if (require.includes('super_admin') && !caller.user?.super_admin) return false;
  const scopes = caller.key?.scopes ?? [];
  if (!namedBy('scope:', require).every((name) => scopes.includes(name))) return false;
  const groups = namedBy('group:', require);
  const own = groupsOf(caller);
  return groups.length === 0 || groups.some((name) => own.includes(name));
}

/** Forward authentication for a proxy. */
export async function forwardAuth({ caller, query }: IdentityCall<unknown, Rule>) {
  if (caller.session?.hasTemporaryPassword) return TEMPORARY_PASSWORD;
  if (!isAdmitted(caller, query)) return forbidden(caller);
  return { data: null, headers: callerHeaders(caller) };
}

/**
 * Every header is always present, empty if need be, so that the proxy overwrites what the client
 * may have sent (ASVS 4.1.3). Some versions of Caddy do not copy an empty header (CVE-2026-30851)
 * and must remove the client's first.
 */
export function callerHeaders(caller: Caller, { methods, time }: SignIn = UNKNOWN_SIGN_IN) {
  const { session, key, user } = caller;
  return {
    'X-Auth-User-Id': user?.id ?? '',
    'X-Auth-Username': headerValue(user?.username ?? ''),
    'X-Auth-Email': headerValue(user?.email ?? ''),
    'X-Auth-Super-Admin': String(user?.super_admin ?? false),
    'X-Auth-Groups': groupsOf(caller).join(','),
    'X-Auth-Session-Id': session?.id ?? '',
    'X-Auth-Key-Id': key?.id ?? '',
    'X-Auth-Methods': methods,
    'X-Auth-Time': time,
    'X-Auth-Scopes': key?.scopes.join(',') ?? '',
  };
}

/** By which methods a person signed in, and when, in seconds since 1970. */
type SignIn = Readonly<{ methods: string; time: string }>;
/** Of an API key, and of every caller without the sign-in pages. */
const UNKNOWN_SIGN_IN: SignIn = { methods: '', time: '' };

/**
 * Percent-encodes all but ASCII, and what separates or quotes values in a header, such as `(`.
 * `decodeURIComponent` reads it.
 */
export const headerValue = (name: string) =>
  name.replace(/[^\w .@+!#$&'*/=?^`{|}~-]/gu, (character) =>
    Array.from(Buffer.from(character), percentEncoded).join(''),
  );

export const percentEncoded = (byte: number) =>
  `%${byte.toString(16).padStart(2, '0').toUpperCase()}`;

/** For the document. */
export const CALLER_HEADERS = Object.keys(callerHeaders({ session: null, key: null, user: null }));
