import { Failure } from '../../platform/http/route/errors.ts';
import { type Call, type Guard, route, routeDefaults } from '../../platform/http/route/route.ts';
import {
  type Members,
  queryParameters,
  type Schema,
  type Values,
} from '../../platform/http/route/schema.ts';
import type { PortalService } from '../service.ts';
import { type PortalCall, signedIn } from './browser.ts';
import { FAILURES, type Form, type PageHandler } from './forms.ts';
import { failurePage } from './pages.ts';
import type { Visitor } from './templates.ts';

/** What the rows of pages and forms have in common. */

export const shared = {
  ...routeDefaults,
  method: 'GET',
  reply: null,
  errors: ['service_failed'],
} as const;
export const pageRow = (method: 'GET' | 'POST', pattern: string, about: string) =>
  ({
    ...shared,
    method,
    pattern,
    summary: `Sign-in pages: ${about}`,
    replyType: 'text/html',
    errors: FAILURES,
  }) as const;

export const page = <Caller extends Visitor, M extends Members>(
  pattern: string,
  about: string,
  guard: Guard<PortalService, Caller>,
  query: M,
  handle: PageHandler<Call<Caller, unknown, Values<M>, null>>,
) =>
  route({
    ...pageRow('GET', pattern, about),
    guard,
    query: withoutEmpty(queryParameters(query, 'ignored')),
    handle: withPage(handle),
  });

/** A form sends a filter that was left empty, too. */
const withoutEmpty = <T>(schema: Schema<T>): Schema<T> => ({
  ...schema,
  read(input, at, reject) {
    const given = input instanceof URLSearchParams ? [...input] : [];
    return schema.read(new URLSearchParams(given.filter(([, value]) => value)), at, reject);
  },
});

/** A failure keeps the way to the other pages. */
export const withPage =
  <Caller extends Visitor, Path, Query, Body>(
    handle: PageHandler<Call<Caller, Path, Query, Body>>,
  ): PageHandler<Call<Caller, Path, Query, Body>> =>
  async (call, service) => {
    const outcome = await handle(call, service);
    if (!(outcome instanceof Failure) || outcome.details.page || !call.caller) return outcome;
    return new Failure(outcome.code, { ...outcome.details, page: failurePage(outcome, call) });
  };

export const csv = <M extends Members>(
  pattern: string,
  about: string,
  query: M,
  handle: PageHandler<PortalCall<Values<M>, unknown, null>>,
) => ({
  ...page(pattern, `${about} as CSV`, signedIn, query, handle),
  replyType: 'text/csv',
});

/** The guard of a form stands beside its fields. */
export const post = <Caller extends Visitor>(
  pattern: string,
  about: string,
  form: Form<Caller, unknown>,
) => route({ ...pageRow('POST', pattern, about), ...form, handle: withPage(form.handle) });
