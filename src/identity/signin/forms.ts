import type { Call, Guard } from '../../http/route.ts';
import { Failure, type TextReply } from '../../http/errors.ts';
import { escapeHtml } from '../../http/html.ts';
import { type BodyRule, invalidBody, json } from '../../http/json-body.ts';
import {
  type Members,
  object,
  text,
  validate,
  type Values,
  withDefault,
} from '../../http/schema.ts';
import { invalid } from '../policy.ts';
import { controlCharError, PASSWORD_MAX_UNITS } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { errorMessage, render, sentence } from './pages.ts';

/** Fields of several forms. */
export const return_to = withDefault(
  text({ description: 'Where to go after signing in: an address of RETURN_ORIGINS' }),
  '',
);
export type ReturnInput = Readonly<{ return_to: string }>;
export const password = text({ max: PASSWORD_MAX_UNITS });
export const code = text({ max: 64 });
export const label = text({ min: 1, max: 64, check: controlCharError });

/** What a page may answer with. */
export const FAILURES = [
  'unauthorized',
  'invalid_credentials',
  'invalid_code',
  'invalid_passkey',
  'invalid_session',
  'invalid_body',
  'second_factor_needed',
  'signin_too_old',
  'too_many_requests',
  'key_unknown',
  'service_failed',
  'forbidden',
  'not_found',
  'conflict',
] as const;
type PageFailure = Failure<(typeof FAILURES)[number]>;
export type PageReply = TextReply | PageFailure;
export type PageHandler<Input> = (call: Input, service: PortalService) => Promise<PageReply>;

/** The part of a route that a form decides: who may send it, its fields, and what happens then. */
export type Form<Caller, Path> = Readonly<{
  guard: Guard<PortalService, Caller>;
  body: BodyRule<Typed>;
  handle: PageHandler<Call<Caller, Path, Record<never, never>, Typed>>;
}>;

/**
 * @param fields of an HTML form
 * @param showAgain the page of the form, where the user can try again after a failure
 */
export const form = <Caller, Path, M extends Members>(
  guard: Guard<PortalService, Caller>,
  fields: M,
  action: PageHandler<Call<Caller, Path, Record<never, never>, Values<M>>>,
  showAgain?: Form<Caller, Path>['handle'],
): Form<Caller, Path> => ({
  guard,
  body: {
    ...json(object(fields)),
    accepts({ 'content-type': contentType = '' }) {
      if (/^application\/x-www-form-urlencoded *(;|$)/i.test(contentType)) return null;
      return new Failure('unsupported_media_type', {
        message: 'Send the fields of the form as the page does.',
      });
    },
    // Each field may be given once.
    parse(raw) {
      const pairs = [...new URLSearchParams(raw.toString('utf8'))];
      if (new Map(pairs).size < pairs.length) return invalidBody('has a field twice');
      return Object.fromEntries(pairs);
    },
  },
  async handle(call, service) {
    const { body: typed, request } = call;
    // A password that is typed blind is typed twice.
    const { password, new_password = password, repeated = new_password } = typed;
    const body =
      repeated === new_password
        ? validate(object(fields), typed, 'invalid_body')
        : invalid('/repeated', 'must be the same as the new password');
    const outcome = body instanceof Failure ? body : await action({ ...call, body }, service);
    if (!showAgain || !(outcome instanceof Failure)) return outcome;
    // A user without the right does not see the page either.
    if (outcome.code === 'forbidden') return outcome;
    const shown = await showAgain(call, service);
    if (shown instanceof Failure) return shown;
    return withProblems(shown, request.path, typed, outcome);
  },
});

/** The fields as the browser sent them. */
type Typed = Readonly<Record<string, string>>;
/** In templates, `type="hidden"` comes first, and `aria-describedby` names the message to come. */
const FIELD = /<(?:input|select)(?! type="hidden")[^>]* name="([a-z_]+)"[^>]*>/g;

/**
 * The failure on the page of its form: what was typed is kept, passwords aside, and each message
 * stands beside its field. The first of them, or the password, gets the focus.
 */
export function withProblems(
  page: TextReply,
  path: string,
  typed: Typed,
  failure: PageFailure,
): PageFailure {
  const text = page.text.replace('</title>', ': try again</title>');
  const tag = text.indexOf(`method="post" action="${path.replace(/\/$/, '')}"`);
  const start = text.indexOf('>', tag) + 1;
  const end = text.indexOf('</form>', start);
  const form = text.slice(start, end);
  const { code, details } = failure;
  const messages = new Map(
    details.fields?.map(({ path, message }) => [path.slice(1), sentence(message)]),
  );
  const faulty = [...messages.keys()].filter((name) => form.includes(` name="${name}"`));
  const focus = faulty[0] ?? /name="([a-z_]+)" type="password"/.exec(form)?.[1];
  const isFormWrong = faulty.length < Math.max(1, messages.size);
  const alert = isFormWrong ? render('alert', { message: errorMessage(failure) }).text : '';
  const fields = withChosen(form, Object.values(typed)).replace(FIELD, (given, name: string) => {
    const message = messages.get(name);
    const tag = focus === undefined ? given : given.replace(' autofocus', '');
    const value = /type="password"|<select/.test(tag) ? undefined : typed[name];
    const kept =
      value === undefined
        ? tag
        : withAttributes(tag.replace(/ value="[^"]*"/, ''), `value="${escapeHtml(value)}"`);
    const focused = name === focus ? withAttributes(kept, 'autofocus') : kept;
    if (message === undefined) return focused;
    const problem = render('field-problem', { name, message }).text;
    return withAttributes(focused, 'aria-invalid="true"') + problem;
  });
  const before = text.slice(0, start).replace(/<details(?!.*<\/details>)/s, '<details open');
  const shown = { ...page, text: before + alert + fields + text.slice(end) };
  return new Failure(code, { ...details, page: shown });
}

/** Selects the options with one of these values. */
export const withChosen = (html: string, values: readonly string[]) =>
  html.replace(/<option value="([^"]*)"( selected)?/g, (_, value: string) => {
    const chosen = values.includes(value) ? ' selected' : '';
    return `<option value="${value}"${chosen}`;
  });

const withAttributes = (tag: string, attributes: string) => `${tag.slice(0, -1)} ${attributes}>`;
