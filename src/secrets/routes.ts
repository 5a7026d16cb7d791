import { json } from '../http/body.ts';
import { withBuiltIns } from '../http/builtin.ts';
import { plain, type Route, route } from '../http/call.ts';
import { dateTime, integer, list as listOf, nullable, object, optional, parameters, text, uuid } from '../http/shape.ts';
import { bearer } from './guard.ts';
import { decrypt, encrypt, list } from './secrets.ts';
import type { SecretsService } from './service.ts';

const PASSWORD_BYTES = 32 * 1024;
const MOST_SECONDS = 30 * 86_400;
const MOST_READS = 1_000;

const password = text({
  min: 1,
  description: `The secret text: 1 byte to ${PASSWORD_BYTES} bytes in UTF-8, given back exactly as it came`,
  check: (value) => (Buffer.byteLength(value) > PASSWORD_BYTES ? `must have at most ${PASSWORD_BYTES} bytes in UTF-8` : null),
});

// A misspelt max_reads would leave a secret readable for ever: what is not known is refused.
const wish = object(
  {
    password,
    expires_in: optional(integer({ min: 1, max: MOST_SECONDS, description: 'Seconds from now' })),
    max_reads: optional(integer({ min: 1, max: MOST_READS, description: 'How often it may be read' })),
  },
  'refused',
);
const made = object({ id: uuid(), secret: text({ description: 'The encryption key, given out this one time' }), expires_at: nullable(dateTime()) });
const key = object({ secret: text({ min: 1, max: 256, description: 'The encryption key that encrypt returned' }) });

const rows: ReadonlyArray<Route<SecretsService>> = [
  route({ ...plain, method: 'POST', pattern: '/api/store/encrypt',
    summary: 'Store a secret encrypted; hand back its identifier and its key',
    guard: bearer, body: json(wish), success: 201,
    reply: made, errors: ['unavailable'], handle: encrypt,
  }),
  route({ ...plain, method: 'POST', pattern: '/api/store/decrypt',
    summary: 'Open a secret with its identifier and its key',
    guard: bearer, query: parameters({ id: uuid('The identifier that encrypt returned') }), body: json(key),
    reply: object({ password: text() }), errors: ['not_found', 'key_unknown', 'secret_damaged', 'unavailable'], handle: decrypt,
  }),
  route({ ...plain, method: 'GET', pattern: '/api/store',
    summary: 'All secrets as identifier and encrypted text',
    guard: bearer,
    reply: listOf(object({ id: uuid(), secret: text({ description: 'The encrypted secret' }) })), errors: ['unavailable'], handle: list,
  }),
];

export const routes = withBuiltIns(
  rows,
  {
    title: 'Gatehouse secrets',
    version: '0.1.0',
    envelope: 'bare',
    securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
  },
  'unavailable',
);
