import { Failure } from '../../platform/http/route/errors.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import type { PortalService } from '../service.ts';
import { Rejection } from './webauthn.ts';

/** Why a passkey is not accepted: one word for the log, and a sentence for who can do something. */

export const MAX_PASSKEYS = 20; // of a user

/** A browser without cookies cannot sign in at all. */
export const NO_COOKIES =
  'Your browser did not send the cookie of this page. Allow cookies for this address, and load the page again.';
const TOO_LATE = 'The page was open for too long, or its form was sent twice. Try again.';

/** None tells of an account more than its user knows. Other reasons share one sentence. */
const SENTENCES: ReadonlyMap<string, string> = new Map([
  [
    'malformed',
    'Your browser or password manager sent it incomplete. Update it, or use another one.',
  ],
  ['no_cookie', NO_COOKIES],
  ['late_challenge', TOO_LATE],
  ['used_challenge', TOO_LATE],
  ['other_challenge', TOO_LATE],
  ['wrong_origin', 'It was used at another address. Open this page at its own address.'],
  ['in_frame', 'This page was shown inside another one. Open it in a window of its own.'],
  [
    'user_not_verified',
    'The device did not check your fingerprint, face or PIN. Set one up on it.',
  ],
  ['unsupported_key', 'Its kind is not supported. Use another device or browser.'],
  ['limit', `You have ${MAX_PASSKEYS} passkeys and security keys. Remove one first.`],
  ['registered', 'It was added before, perhaps to another account.'],
  ['second_step', 'It is a second step. Enter your password first.'],
  ['other_backup', 'It has changed since it was added. Remove it, and add it again.'],
]);

/** @throws Rejection */
export function insist(holds: boolean, reason: string): asserts holds {
  if (!holds) throw new Rejection(reason);
}

/** Turns a rejection into the reply, and logs its reason. */
export const orRefusal = <T>(work: Promise<T>, request: RequestInfo, service: PortalService) =>
  work.catch((error: unknown) => {
    if (!(error instanceof Rejection)) throw error;
    const { ids, route } = request;
    service.log.limited('passkey refused', { ...ids, route, reason: error.message });
    const sentence = SENTENCES.get(error.message);
    const message = `The passkey was not accepted. ${sentence}`;
    return new Failure('invalid_passkey', sentence === undefined ? {} : { message });
  });
