import { Failure } from '../../platform/http/route/errors.ts';
import { type Call, type Guard, route, routeDefaults } from '../../platform/http/route/route.ts';
import {
  type Members,
  queryParameters,
  type Schema,
  type Values,
} from '../../platform/http/route/schema.ts';
import { Html } from '../../platform/http/site/html.ts';
import type { PortalService } from '../service.ts';
import { type PortalCall, signedIn, type SignedInUser } from './browser.ts';
import { FAILURES, form, type Form, type PageHandler } from './forms.ts';
import { done, failurePage, page as shownPage } from './pages.ts';
import type { PageCall, Typed, Visitor } from './templates.ts';

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

export const page = <Caller extends Visitor, M extends Members, Service extends PortalService>(
  pattern: string,
  about: string,
  guard: Guard<PortalService, Caller>,
  query: M,
  handle: PageHandler<Call<Caller, unknown, Values<M>, null>, Service>,
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
  <Input extends Pick<PageCall, 'caller'>, Service>(
    handle: PageHandler<Input, Service>,
  ): PageHandler<Input, Service> =>
  async (call, service) => {
    const outcome = await handle(call, service);
    if (!(outcome instanceof Failure) || outcome.details.page || !call.caller) return outcome;
    return new Failure(outcome.code, { ...outcome.details, page: failurePage(outcome, call) });
  };

/** A list, also as CSV. */
export const listPages = <M extends Members>(
  pattern: string,
  about: string,
  query: M,
  show: PageHandler<PortalCall<Values<M>, unknown, null>>,
) => [
  page(pattern, about, signedIn, query, show),
  {
    ...page(`${pattern}.csv`, `${about} as CSV`, signedIn, query, show),
    replyType: 'text/csv',
  },
];

/** The guard of a form stands beside its fields. */
export const post = <Caller extends Visitor, Service extends PortalService>(
  pattern: string,
  about: string,
  form: Form<Caller, unknown, Service>,
) => route({ ...pageRow('POST', pattern, about), ...form, handle: withPage(form.handle) });

/**
 * A form that leads back to its page, whose address is that of the form without its last part; or
 * after a deletion to the list before it.
 * @param notice says what was done
 * @param apply may return what is shown once, because only its digest or hash is stored
 */
export const changeForm = <Path, M extends Members>(
  guard: Guard<PortalService, SignedInUser>,
  fields: M,
  notice: string,
  apply: (call: PortalCall<unknown, Path, Values<M>>, service: PortalService) => Promise<unknown>,
  showAgain: PageHandler<PortalCall<Record<never, never>, Path, Typed>>,
) =>
  form<SignedInUser, Path, M>(
    guard,
    fields,
    async (call, service) => {
      const changed = await apply(call, service);
      if (changed instanceof Failure) return changed;
      if (changed instanceof Html) return shownPage(notice, changed, call);
      return done(call.request.path.replace(/(\/[^/]+\/delete|\/[^/]+)\/?$/, ''), notice);
    },
    showAgain,
  );
