import { json } from '../http/body.ts';
import { withBuiltIns } from '../http/builtin.ts';
import { plain, type Route, route } from '../http/call.ts';
import { object, text, uuid, withoutNul, word } from '../http/shape.ts';
import { token } from './guard.ts';
import { receive } from './receive.ts';
import type { WebhookService } from './service.ts';

const event = object({
  event: text({ min: 1, max: 1_024, description: 'The kind of event', check: withoutNul }),
  data: object({ page_id: text() }),
});

const rows: ReadonlyArray<Route<WebhookService>> = [
  route({ ...plain, method: 'POST', pattern: '/webhook',
    summary: 'Accept an event: answered once it is stored',
    guard: token, body: json(event, 'required'),
    reply: object({ id: uuid(), status: word('accepted', 'duplicate') }), errors: ['invalid_header', 'unavailable'], handle: receive,
  }),
];

export const routes = withBuiltIns(
  rows,
  {
    title: 'Gatehouse webhook',
    version: '0.1.0',
    envelope: 'bare',
    securitySchemes: {
      token: { type: 'apiKey', in: 'query', name: 'token' },
      bearer: { type: 'http', scheme: 'bearer' },
    },
  },
  'unavailable',
);
