import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { Overloaded, Unavailable } from '../runtime/errors.ts';
import type { Job } from '../runtime/jobs.ts';
import { createRateLimit, createRecentMap } from '../runtime/rate-limit.ts';
import { trimBlanks } from '../runtime/text.ts';
import type { UserSource } from '../runtime/env.ts';
import { ClientGone } from './body-reader.ts';
import { Failure } from './errors.ts';
import type { RequestInfo } from './route.ts';

/**
 * The credential of `Authorization: Bearer …` (RFC 6750, 2.1), or null. The scheme is
 * case-insensitive.
 */
export const bearerOf = (authorization: string | undefined) =>
  /^bearer +([^\s]+) *$/i.exec(authorization ?? '')?.[1] ?? null;

/** How many wrong credentials one network may send at once, and then in each second. */
const BURST = 100;
const PER_SECOND = 1;
/** How many accepted credentials are remembered at least. */
const MAX_ACCEPTED = 10_000;

/** A credential that a request carries, and how to check it. */
export interface Credential<Found> {
  /** Counted and logged with a refusal. */
  readonly kind: 'token' | 'session' | 'key' | 'link' | 'signature';
  /** Null if the credential is malformed. */
  readonly digest: string | null;
  /** For the reply to a credential that is not accepted. */
  readonly message: string;
  /** @returns null for a wrong credential */
  find(digest: string): Promise<Found | null>;
  /** A credential that has ended, or is for something else, is refused but was not guessed. */
  isAllowed?(found: Found): boolean;
}

/**
 * Checks credentials, and limits the wrong ones of each network, in this process (ASVS 2.4.1,
 * 6.3.1). Beyond the limit a credential is rejected before it is compared or looked up. A
 * credential that was accepted from this network is still checked: an attacker behind a proxy or
 * NAT must not lock out its other clients.
 * @returns `checkCredential` finds what the credential stands for, or fails with 401 or 429;
 * `acceptCredential` is for one that was just issued to a network
 */
export function createCredentialCheck() {
  const wrong = createRateLimit(BURST, PER_SECOND);
  const accepted = createRecentMap<true>(MAX_ACCEPTED);
  return {
    async checkCredential<Found>(
      network: string,
      { kind, digest, message, find, isAllowed = () => true }: Credential<Found>,
    ): Promise<Found | Failure<'unauthorized'> | Failure<'too_many_requests'>> {
      const key = `${network} ${digest}`;
      const isKnown = accepted.get(key) ?? false;
      const retryAfterSeconds = isKnown ? 0 : wrong.wait(network);
      if (retryAfterSeconds > 0) {
        return new Failure('too_many_requests', {
          message:
            'Too many wrong credentials came from your network. This one was not checked. Try again after Retry-After.',
          retryAfterSeconds,
          credential: 'unchecked',
        });
      }
      // Counted in advance, so that simultaneous guesses stay within the limit. Not for a network
      // without wrong ones: after a restart, any number of right credentials may come at once. A
      // check that fails does not count.
      const isCounted = !isKnown && !wrong.isFull(network);
      if (isCounted) wrong.add(network, -1);
      let isWrong = false;
      try {
        const found = digest === null ? null : await find(digest);
        isWrong = found === null;
        if (found !== null) {
          accepted.set(key, true);
          if (isAllowed(found)) return found;
        }
        return new Failure('unauthorized', { message, credential: kind });
      } finally {
        if (isWrong !== isCounted) wrong.add(network, isWrong ? -1 : 1);
      }
    },
    acceptCredential(network: string, digest: string) {
      accepted.set(`${network} ${digest}`, true);
    },
  };
}

/** Beyond this number, the use is recorded with the next request. */
const MAX_PENDING = 10_000;

/** Which credentials are in use. A job writes it, outside of requests. */
export function createLastSeen() {
  const pending = new Set<string>();
  return {
    mark({ id, last_seen_is_old }: Readonly<{ id: string; last_seen_is_old: boolean }>) {
      if (last_seen_is_old && pending.size < MAX_PENDING) pending.add(id);
    },
    job(name: string, write: (ids: readonly string[]) => Promise<unknown>): Job {
      return {
        name,
        everySeconds: 5,
        async batch() {
          const ids = [...pending];
          pending.clear();
          // If this fails, the next use is recorded.
          if (ids.length > 0) await write(ids);
        },
      };
    },
  };
}

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
 * @returns the name; null if there is none; a failure, perhaps with the address of the sign-in page
 */
export async function findUser(
  request: RequestInfo,
  { TRUSTED_USER_HEADER: name, TRUSTED_GROUPS_HEADER: groups, SIGNIN_VERIFY_URL }: UserSource,
  allowed: readonly string[],
) {
  const { headers, isFromProxy, isFromOwnPage } = request;
  if (!isFromOwnPage || allowed.length === 0) return null;
  const named = isFromProxy ? userIn(headers, name, groups, allowed) : null;
  if (named !== null || SIGNIN_VERIFY_URL === null) return named;
  const reply = await askIdentity(request, SIGNIN_VERIFY_URL);
  if (reply instanceof Failure) return reply;
  return userIn(reply, 'X-Auth-Username', 'X-Auth-Groups', allowed);
}

function userIn(
  headers: http.IncomingHttpHeaders,
  user: string | null,
  groups: string | null,
  allowed: readonly string[],
) {
  const valueOf = (header: string | null) => String(headers[header?.toLowerCase() ?? ''] ?? '');
  const name = valueOf(user);
  const [, given = ''] = GROUP_NAMES.exec(valueOf(groups)) ?? [];
  const found = ['*', name, ...given.split(',').map((group) => `group:${group}`)];
  return USER_NAME.test(name) && found.some((one) => allowed.includes(one)) ? name : null;
}

/** A cookie that may be of a session. Those of other programs would only cost a request. */
const SESSION_COOKIE = /^(?:__(?:Host|Secure)-gatehouse=[\w-]{43}|session=[\w:%+/=-]{40,128})$/;
/** All of these names are passed on: `verify` counts a cookie that is sent twice as none. */
const COOKIE_NAME = /^(?:__(?:Host|Secure)-gatehouse|session)=/;
const MAX_COOKIE = 2_048;

/** @returns the cookies for identity; empty if none can be of a session */
function sessionCookies({ cookie = '' }: http.IncomingHttpHeaders) {
  const pairs = cookie.split(';').map(trimBlanks);
  const own = pairs.filter((pair) => COOKIE_NAME.test(pair));
  const text = own.join('; ');
  return own.some((pair) => SESSION_COOKIE.test(pair)) && text.length <= MAX_COOKIE ? text : '';
}

/** What identity replies to a visitor without a session, by the address of `verify`. */
const KEPT_MS = 60_000;
const refusals = createRecentMap<Readonly<{ reply: Refusal; at: number }>>(16);
type Refusal = Failure<'unauthorized'> | typeof NOBODY;
const NOBODY: http.IncomingHttpHeaders = {};

/** Visitors without a session cost identity one request a minute, not one each. */
async function askIdentity(request: RequestInfo, verify: string) {
  const cookie = sessionCookies(request.headers);
  const kept = cookie === '' ? refusals.get(verify) : undefined;
  if (kept && performance.now() - kept.at < KEPT_MS) return kept.reply;
  const reply = await askVerify(request, verify, cookie);
  if (reply instanceof Failure && reply.code === 'too_many_requests') return reply;
  const isRefusal = reply instanceof Failure || reply === NOBODY;
  if (cookie === '' && isRefusal) refusals.set(verify, { reply, at: performance.now() });
  return reply;
}

/** Requests to identity that one process waits for, and those of one network. */
const MAX_ASKED = 64;
const MAX_ASKED_PER_NETWORK = MAX_ASKED / 4;
const asked: string[] = [];

async function askVerify(info: RequestInfo, verify: string, cookie: string) {
  const { address, network } = info;
  const share = asked.filter((one) => one === network);
  if (asked.length >= MAX_ASKED || share.length >= MAX_ASKED_PER_NETWORK) {
    throw new Overloaded('too many wait for the sign-in service');
  }
  asked.push(network);
  const { request } = verify.startsWith('https') ? https : http;
  const question = request(verify, {
    method: 'HEAD',
    headers: { Accept: 'text/html', Cookie: cookie, 'X-Forwarded-For': address },
    maxHeaderSize: 16_384,
    signal: AbortSignal.timeout(5_000),
  });
  const endWatch = info.whenGone(() => question.destroy());
  const [reply]: http.IncomingMessage[] = await once(question.end(), 'response')
    .catch(() => [])
    .finally(() => {
      endWatch();
      asked.splice(asked.indexOf(network), 1);
    });
  if (info.isGone()) throw new ClientGone();
  return judge(reply?.resume());
}

/** What a reply of `verify` says. */
function judge({ statusCode, headers }: Partial<http.IncomingMessage> = {}) {
  const { location, 'retry-after': seconds } = headers ?? {};
  if (location) return new Failure('unauthorized', { headers: { Location: location } });
  if (statusCode === 200) return headers ?? NOBODY;
  if (statusCode === 401 || statusCode === 403) return NOBODY;
  // Too many wrong cookies came from the network of the client.
  if (statusCode === 429) {
    const retryAfterSeconds = Math.min(Number(seconds) || 1, 3_600);
    return new Failure('too_many_requests', { retryAfterSeconds });
  }
  throw new Unavailable('the address of SIGNIN_VERIFY_URL does not answer as expected');
}
