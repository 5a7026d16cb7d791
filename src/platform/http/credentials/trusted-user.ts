import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { Overloaded, Unavailable } from '../../runtime/errors.ts';
import { trimBlanks } from '../../runtime/text.ts';
import { Failure, type RequestInfo } from '../route/route.ts';
import { ClientGone } from '../wire/body-reader.ts';
import { createBudget } from '../wire/budget.ts';
import type { UserSource } from './user-source.ts';

/**
 * Without a comma, which would join a second header that the client may have sent. A name that
 * begins like a group in a list of users is not believed.
 */
const USER_NAME = /^(?!group:)[\x20-\x2b\x2d-\x7e\xa0-\xff]{1,255}$/;
/** Separated as `verify` does it: a second header would be joined with a space. */
const GROUP_NAMES = /^([a-z0-9._,-]+)$/;

/**
 * The user of a request without a token, whom a proxy names in a header that it sets
 * (TRUSTED_USER_HEADER, believed only from TRUSTED_PROXIES), or whose cookie the identity service
 * accepts (SIGNIN_VERIFY_URL). Both also come with requests that a page of another site causes
 * (CSRF), so the request must show that a page of this host sent it.
 * @param allowed usernames, groups as `group:NAME`, or `*` for every user
 * @returns who it is, and whether `allowed` has them; null for nobody; a failure, perhaps with the
 * address of the sign-in page
 */
export async function findUser(
  request: RequestInfo,
  { SIGNIN_VERIFY_URL, ...names }: UserSource,
  allowed: readonly string[],
) {
  const { headers, isFromProxy, isFromOwnPage } = request;
  if (!isFromOwnPage || allowed.length === 0) return null;
  const named = isFromProxy ? userIn(headers, names, allowed) : null;
  if (named?.isAllowed || SIGNIN_VERIFY_URL === null) return named;
  const reply = await askIdentity(request, SIGNIN_VERIFY_URL);
  if (reply === null || reply instanceof Failure) return reply;
  return userIn(reply, VERIFY_HEADERS, allowed);
}

const VERIFY_HEADERS = {
  TRUSTED_USER_HEADER: 'X-Auth-Username',
  TRUSTED_ID_HEADER: 'X-Auth-User-Id',
  TRUSTED_GROUPS_HEADER: 'X-Auth-Groups',
};

/** `id`: empty if nothing says it. A name may later be another person's. */

function userIn(
  headers: http.IncomingHttpHeaders,
  names: Omit<UserSource, 'SIGNIN_VERIFY_URL'>,
  allowed: readonly string[],
) {
  const valueOf = (header: string | null) => String(headers[header?.toLowerCase() ?? ''] ?? '');
  const name = valueOf(names.TRUSTED_USER_HEADER);
  const id = USER_NAME.exec(valueOf(names.TRUSTED_ID_HEADER))?.[0] ?? '';
  const [, given = ''] = GROUP_NAMES.exec(valueOf(names.TRUSTED_GROUPS_HEADER)) ?? [];
  const found = ['*', name, ...given.split(',').map((group) => `group:${group}`)];
  const isAllowed = found.some((one) => allowed.includes(one));
  return USER_NAME.test(name) ? { name, id, isAllowed } : null;
}

/** A cookie that may be of a session. Those of other programs would only cost a request. */
const SESSION_COOKIE = /^(?:__(?:Host|Secure)-gatehouse=[\w-]{43}|session=[\w:%+/=-]{40,128})$/;
/** All of these names are passed on: `verify` counts a cookie that is sent twice as none. */
const COOKIE_NAME = /^(?:__(?:Host|Secure)-gatehouse|session)=/;
const MAX_COOKIE = 2_048;
/** Longer than any cookie of a session: what is cut, of another program, is never taken for one. */
const MAX_PAIR = 160;

/** @returns the cookies for identity; empty if none can be of a session */
function sessionCookies({ cookie = '' }: http.IncomingHttpHeaders) {
  const pairs = cookie.split(';').map(trimBlanks);
  const named = pairs.filter((pair) => COOKIE_NAME.test(pair));
  const text = named.map((pair) => pair.slice(0, MAX_PAIR)).join('; ');
  return named.some((pair) => SESSION_COOKIE.test(pair)) && text.length <= MAX_COOKIE ? text : '';
}

/** What identity replies to a visitor without a session, by the address of `verify`. */
const KEPT_MS = 60_000;
type Refusal = Failure<'unauthorized'> | Failure<'too_many_requests'>;
const refusals = new Map<string, Refusal | null>();

/** Visitors without a session cost identity one request a minute, not one each. */
async function askIdentity(request: RequestInfo, verify: string) {
  const cookie = sessionCookies(request.headers);
  if (cookie !== '') return askVerify(request, verify, cookie);
  const kept = refusals.get(verify);
  if (kept !== undefined) return kept;
  const reply = await askVerify(request, verify, cookie);
  const isRefusal = reply === null || (reply instanceof Failure && reply.code === 'unauthorized');
  if (isRefusal) {
    refusals.set(verify, reply);
    setTimeout(() => refusals.delete(verify), KEPT_MS).unref();
  }
  return reply;
}

/** Requests to identity that one process waits for, of which a network has a share. */
const asked = createBudget(64);

async function askVerify(info: RequestInfo, verify: string, cookie: string) {
  const { address, network, gone } = info;
  const place = asked.open(network, 0);
  if (place.growTo(1)) throw new Overloaded('too many wait for the sign-in service');
  const { request } = verify.startsWith('https') ? https : http;
  const question = request(verify, {
    method: 'HEAD',
    headers: {
      Accept: 'text/html',
      Cookie: cookie,
      'X-Forwarded-For': address,
    },
    maxHeaderSize: 16_384,
    signal: AbortSignal.any([gone, AbortSignal.timeout(5_000)]),
    // A kept connection may be closed just before the question arrives (RFC 9112, 9.3.1).
    agent: false,
  });
  const replied = once(question.end(), 'response').catch(() => []);
  const [reply]: http.IncomingMessage[] = await replied.finally(place.release);
  if (gone.aborted) throw new ClientGone();
  return judge(reply?.resume());
}

/** @returns the headers that name the user; null if there is none */
function judge({ statusCode, headers = {} }: Partial<http.IncomingMessage> = {}) {
  const { location, 'retry-after': seconds } = headers;
  if (location) return new Failure('unauthorized', { headers: { Location: location } });
  if (statusCode === 200) return headers;
  if (statusCode === 401 || statusCode === 403) return null;
  // Too many wrong cookies came from the network of the client.
  if (statusCode === 429) {
    const retryAfterSeconds = Math.min(Number(seconds) || 1, 3_600);
    return new Failure('too_many_requests', { retryAfterSeconds });
  }
  throw new Unavailable('the address of SIGNIN_VERIFY_URL does not answer as expected');
}
