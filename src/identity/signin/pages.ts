import type { Call, Guard } from '../../http/route.ts';
import { type ErrorCode, ERRORS, Failure, type TextReply } from '../../http/errors.ts';
import { type BodyRule, invalidBody, json } from '../../http/json-body.ts';
import {
  type Members,
  object,
  type Schema,
  text,
  validate,
  type Values,
  withDefault,
} from '../../http/schema.ts';
import { HTML, type Html, NOTHING, pageHeaders, readTemplates } from '../../http/html.ts';
import { controlCharError } from '../rules.ts';
import type { PortalService } from '../service.ts';

export const render = readTemplates(new URL('pages/pages.html', import.meta.url));

/**
 * For a page whose forms work without scripts. With `no-referrer`, browsers would send them with
 * `Origin: null`.
 */
const FORM_HEADERS = { ...pageHeaders("'self'"), 'Referrer-Policy': 'same-origin' };

/**
 * @param message what went wrong, shown first and announced by screen readers; empty for nothing
 */
export function page(
  title: string,
  main: Html,
  message = '',
  cookies: string[] = [],
  head = NOTHING,
): TextReply {
  const { text } = render('page', { title, head, main, ...errorContext(message) });
  return { text, contentType: HTML, headers: { ...FORM_HEADERS, 'Set-Cookie': cookies } };
}

/**
 * What a failure adds to a form: its message, attributes of fields, of which `again` sets the
 * focus, and `open` of an element `details`.
 */
export const errorContext = (message = '') =>
  Object.fromEntries(
    ['alert', 'again', 'open', 'invalid'].map((name) => [
      name,
      message === '' ? NOTHING : render(name, { message }),
    ]),
  );

/** What went wrong and how long to wait, for the user. */
export function errorMessage({ code, details }: Failure): string {
  const { fields = [], retryAfterSeconds: wait } = details;
  const nameOf = (path: string) => path.replace(/^\//, '').replaceAll('_', ' ');
  const problems = fields.map(({ path, message }) => `${nameOf(path)} ${message}`);
  if (problems.length > 0) return `${problems.join('; ')}.`;
  if (wait === undefined) return details.message ?? ERRORS[code][1];
  return `Too many attempts. Try again in ${Math.max(1, Math.ceil(wait))} seconds.`;
}

/** Fields of several forms. */
export const return_to = withDefault(
  text({ description: 'Where to go after signing in: an address of RETURN_ORIGINS' }),
  '',
);
export type ReturnInput = Readonly<{ return_to: string }>;
export const password = text({ max: 4_096 });
export const code = text({ max: 64 });
export const label = text({ min: 1, max: 64, check: controlCharError });

/** What a page may answer with. */
export const FAILURES = [
  'invalid_credentials',
  'invalid_code',
  'invalid_passkey',
  'invalid_session',
  'invalid_body',
  'second_factor_needed',
  'too_many_requests',
  'key_unknown',
  'service_failed',
  'forbidden',
  'not_found',
  'conflict',
] as const;
/** @param message what went wrong, if a form is shown again */
export type PageHandler<Input> = (
  call: Input,
  service: PortalService,
  message?: string,
) => Promise<TextReply | Failure<(typeof FAILURES)[number]>>;

/** The part of a route that a form decides: who may send it, its fields, and what happens then. */
export type Form<Caller, Path, Body> = Readonly<{
  guard: Guard<PortalService, Caller>;
  body: BodyRule<Body>;
  handle: PageHandler<Call<Caller, Path, Record<never, never>, Body>>;
}>;

/** The fields of an HTML form. Each may be given once. */
const formBody = <Body>(schema: Schema<Body>): BodyRule<Body> => ({
  ...json(schema),
  accepts({ 'content-type': contentType = '' }) {
    if (/^application\/x-www-form-urlencoded *(;|$)/i.test(contentType)) return null;
    return new Failure('unsupported_media_type', {
      message: 'Send the fields of the form as the page does.',
    });
  },
  parse(raw) {
    const fields = [...new URLSearchParams(raw.toString('utf8'))];
    const values = Object.fromEntries(fields);
    if (new Map(fields).size === fields.length) return validate(schema, values, 'invalid_body');
    return invalidBody('has a field twice');
  },
});

/** @param showAgain the page of the form, where the user can try again after a failure */
export const form = <Caller, Path, M extends Members>(
  guard: Guard<PortalService, Caller>,
  fields: M,
  action: PageHandler<Call<Caller, Path, Record<never, never>, Values<M>>>,
  showAgain?: PageHandler<Call<Caller, Path, Record<never, never>, Values<M>>>,
): Form<Caller, Path, Values<M>> => ({
  guard,
  body: formBody(object(fields)),
  async handle(call, service) {
    const outcome = await action(call, service);
    if (!showAgain || !(outcome instanceof Failure)) return outcome;
    // A user without the right does not see the page either.
    if (outcome.code === 'forbidden') return outcome;
    const shown = await showAgain(call, service, errorMessage(outcome));
    return shown instanceof Failure ? shown : shownOn(shown, outcome);
  },
});

/** The status of the failure, on this page. */
export const shownOn = <Code extends ErrorCode>(
  page: TextReply,
  { code, details }: Failure<Code>,
): Failure<Code> => new Failure(code, { ...details, page });

const TITLES = { login: 'Sign in', code: 'Second factor', 'new-password': 'Choose a password' };

/** `notice`: shown above the first form. */
type SignInFields = Readonly<{ username?: string; return_to: string; notice?: Html }>;

/**
 * A page of the sign-in.
 * @param template `code`: for the code of an app, or a recovery code in the same field
 */
export function signInPage(
  template: keyof typeof TITLES,
  { username = '', return_to, notice = NOTHING }: SignInFields,
  message = '',
  cookies: string[] = [],
): TextReply {
  const title = message === '' ? TITLES[template] : `${TITLES[template]}: try again`;
  const passkey = render('passkey', { return_to });
  const fields = { return_to, username, notice, passkey };
  const main = render(template, { ...fields, ...errorContext(message) });
  return page(title, main, message, cookies, render('script'));
}

/**
 * Not a redirect: browsers apply `form-action`, which names only the portal, to each redirect after
 * a form.
 */
export const continuePage = (title: string, address: string, cookies: string[]): TextReply =>
  page(title, render('continue', { address }), '', cookies, render('refresh', { address }));

export const failurePage = (failure: Failure): TextReply =>
  page('That did not work', render('failure'), errorMessage(failure));

export const utc = (time: Date): string =>
  `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`;

const BROWSERS = ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'];
const SYSTEMS = ['Android', 'iPhone', 'iPad', 'Windows', 'Mac OS X', 'Linux'];

/**
 * Names that a person recognizes: a browser and its system, or otherwise the name that the program
 * sends.
 */
export function programOf(agent: string): string {
  const browser = BROWSERS.find((name) => agent.includes(`${name}/`));
  const system = SYSTEMS.find((name) => agent.includes(name));
  if (!browser || !system) return agent || 'Unknown program';
  return `${{ Edg: 'Edge', OPR: 'Opera' }[browser] ?? browser} on ${system}`;
}

/** Shown once: only their digests are stored. */
export const codesPage = (codes: readonly string[], next: string, cookies: string[]): TextReply =>
  page(
    'Recovery codes',
    render('codes', { codes: codes.join('\n'), next, others: render('others') }),
    '',
    cookies,
  );

export const PAGE_ROWS = 20;

/** @param path with the other parameters of the list, and `page=` at its end */
export function pager(path: string, number: number, total: number): Html {
  const last = Math.ceil(total / PAGE_ROWS);
  if (last <= 1) return NOTHING;
  return render('pages', {
    page: number,
    last,
    previous: `${path}${Math.max(1, number - 1)}`,
    next: `${path}${Math.min(last, number + 1)}`,
  });
}
