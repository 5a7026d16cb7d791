import { readThrottle, takeAttempt } from '../db/throttle.ts';
import { json } from '../http/body.ts';
import { anonymous, type Call, type Route, route, routeDefaults } from '../http/call.ts';
import { type ErrorCode, Failure } from '../http/errors.ts';
import { pageRows } from '../http/pages.ts';
import { object, uuid } from '../http/shape.ts';
import type { Site } from '../runtime/context.ts';
import { SCHEMA } from './migrations.ts';
import { type DecryptRequest, decryptRequestShape, limitOf, OPEN_ERRORS, openedShape, openSecret } from './open.ts';
import type { SecretsService } from './service.ts';

/** Loading a page reveals nothing, so mail scanners and link previews cannot use up a secret. */
const PAGES = [
  { pattern: '/', summary: 'Share pages: create a secret', name: 'make.html' },
  { pattern: '/s/{id}', summary: 'Share pages: reveal a secret on a click', name: 'reveal.html' },
];
const DIRECTORY = new URL('pages/', import.meta.url);
const SCRIPTS = ['make.js', 'reveal.js', 'qr.js'];

export const shareRoutes = (site: Site): ReadonlyArray<Route<SecretsService>> => [
  ...pageRows<SecretsService>(site, DIRECTORY, PAGES, SCRIPTS, 'Share pages: scripts, style sheets, logo'),
  route({ ...routeDefaults, method: 'POST', pattern: '/s/{id}',
    summary: 'Share pages: open a secret with its link, without a bearer token',
    // A page of another site can send any other content type without a preflight, and could use up attempts.
    guard: anonymous, path: object({ id: uuid('The id that encrypt returned') }),
    body: json(decryptRequestShape, 'required'), reply: openedShape, errors: OPEN_ERRORS, handle: reveal }),
];

/** Possible guesses, and failures that disclose to somebody without the key that the secret exists. */
const COUNTED: readonly ErrorCode[] = ['not_found', 'wrong_passphrase', 'secret_damaged', 'key_unknown'];

/** Id and key are the credential, so no bearer token is required. */
async function reveal(call: Call<null, { id: string }, unknown, DecryptRequest>, service: SecretsService) {
  const limit = limitOf(service.serverKey, 'link', call.request.network);
  const { wait } = await readThrottle(service.database, SCHEMA, [limit]);
  if (wait > 0) return new Failure('too_many_requests', { retryAfterSeconds: wait });
  const reply = await openSecret(service, call.request, call.path.id, call.body);
  // Counted afterwards, because keys cannot be guessed anyway: this only limits the cost of a flood of wrong ones.
  if (reply instanceof Failure && COUNTED.includes(reply.code)) await takeAttempt(service.database, SCHEMA, limit);
  return reply;
}
