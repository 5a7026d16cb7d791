import { createHmac } from 'node:crypto';
import { networkOf } from '../http/address.ts';
import type { RequestInfo } from '../http/call.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import type { SecretsService } from './service.ts';
import { giveBackTries, type Limit, secondsToWait, takeTry } from './store.ts';

const MINUTE = 60;
const DAY = 86_400;

/** How many tries may fail. Only who has the link can try a passphrase, so the wide limit keeps out no stranger's victim. */
const TRIES = {
  /** Share pages: whatever secret, from one network. */
  link: { tries: 60, seconds: 10 * MINUTE },
  /** Passphrases: one secret, from one network. */
  passphraseHere: { tries: 5, seconds: 15 * MINUTE },
  /** Passphrases: one secret, from everywhere. */
  passphrase: { tries: 30, seconds: DAY },
} as const;

/** What may have been a guess, or tells who has only an id that there is something; whatever else goes wrong does not count. */
const GUESSES: readonly ErrorCode[] = ['not_found', 'wrong_passphrase', 'secret_damaged', 'key_unknown'];
const isGuess = (outcome: unknown) => outcome instanceof Failure && GUESSES.includes(outcome.code);

type Scope = readonly [name: keyof typeof TRIES, ...of: readonly string[]];

export const linkScope = ({ address }: RequestInfo): Scope => ['link', networkOf(address)];
export const passphraseScopes = (id: string, { address }: RequestInfo): readonly Scope[] => [
  ['passphraseHere', id, networkOf(address)],
  ['passphrase', id],
];

/** Ids and networks only as keyed digests: the table is no list of who opened what. */
const limitOf = ({ serverKey }: SecretsService, scope: Scope): Limit => ({
  key: createHmac('sha256', serverKey.throttleKey).update(JSON.stringify(scope)).digest(),
  ...TRIES[scope[0]],
});

const refusal = (wait: number) => new Failure('too_many_requests', { retryAfterSeconds: wait });

/** Does what cannot be guessed anyway, unless too many have been wrong lately: keeps a flood of wrong ones cheap. */
export async function unlessTooManyFailed<T>(service: SecretsService, scope: Scope, attempt: () => Promise<T>): Promise<T | Failure<'too_many_requests'>> {
  const limit = limitOf(service, scope);
  const wait = await secondsToWait(service.database, limit);
  if (wait > 0) return refusal(wait);
  const outcome = await attempt();
  if (isGuess(outcome)) await takeTry(service.database, limit);
  return outcome;
}

/**
 * Does something that can be guessed, if there are tries left in each scope. A try is counted before it is made and given
 * back unless it was a wrong guess, so any number of simultaneous ones gets no more than the limit.
 */
export async function throttled<T>(service: SecretsService, scopes: readonly Scope[], attempt: () => Promise<T>): Promise<T | Failure<'too_many_requests'>> {
  const { database } = service;
  const taken: Buffer[] = [];
  let wasGuess = false;
  try {
    for (const limit of scopes.map((scope) => limitOf(service, scope))) {
      if (!(await takeTry(database, limit))) return refusal(await secondsToWait(database, limit));
      taken.push(limit.key);
    }
    const outcome = await attempt();
    wasGuess = isGuess(outcome);
    return outcome;
  } finally {
    // Whether this succeeds changes no outcome; a try too many is forgotten in time.
    if (!wasGuess && taken.length > 0) await giveBackTries(database, taken).catch(() => {});
  }
}
