import type { Call } from '../../http/call.ts';
import { ERRORS, Failure, type TextReply } from '../../http/errors.ts';
import { form } from '../../http/form.ts';
import { FORM_HEADERS, HTML } from '../../http/pages.ts';
import { type Members, text, type Values, withDefault } from '../../http/shape.ts';
import { type Html, NOTHING, readTemplates } from '../../http/template.ts';
import { controlCharError } from '../rules.ts';
import type { PortalService } from '../service.ts';

export const render = readTemplates(new URL('pages/pages.html', import.meta.url));

/** @param message what went wrong, shown first and announced by screen readers; empty for nothing */
export function page(
  title: string,
  main: Html,
  message = '',
  cookies: string[] = [],
  head = NOTHING,
): TextReply {
  const { text } = render('page', { title, head, alert: again(message).alert, main });
  const headers = cookies.length > 0 ? { ...FORM_HEADERS, 'Set-Cookie': cookies } : FORM_HEADERS;
  return { text, contentType: HTML, headers };
}

/** What a failure adds to a form: its message, attributes of fields, of which `again` sets the focus, and `open`. */
export const again = (message: string) =>
  message === ''
    ? { alert: NOTHING, again: NOTHING, open: NOTHING, invalid: NOTHING }
    : {
        alert: render('alert', { message }),
        again: render('again'),
        open: render('open'),
        invalid: render('invalid'),
      };

/** What went wrong and how long to wait, for the user. */
function messageOf({ code, details }: Failure): string {
  const nameOf = (path: string) => path.replace(/^\//, '').replaceAll('_', ' ');
  const fields = (details.fields ?? []).map(({ path, message }) => `${nameOf(path)} ${message}`);
  const wait = details.retryAfterSeconds;
  if (fields.length > 0) return `${fields.join('; ')}.`;
  if (wait !== undefined)
    return `Too many attempts. Try again in ${Math.max(1, Math.ceil(wait))} seconds.`;
  return details.message ?? ERRORS[code].message;
}

/** Fields of several forms. */
export const address = text({
  description: 'Where to go after signing in: an address of RETURN_ORIGINS',
});
export const return_to = withDefault(address, '');
export const [password, code] = [text({ max: 4_096 }), text({ max: 64 })];
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
export type Handle<Asked, More extends unknown[] = []> = (
  call: Asked,
  service: PortalService,
  ...more: More
) => Promise<TextReply | Failure<(typeof FAILURES)[number]>>;

/** A failure of the action is shown on the page, where the user can try again. */
export const retried =
  <Asked>(action: Handle<Asked>, showAgain: Handle<Asked, [string]>): Handle<Asked> =>
  async (call, service) => {
    const outcome = await action(call, service);
    // A user without the right does not see the page either.
    if (!(outcome instanceof Failure) || outcome.details.page || outcome.code === 'forbidden')
      return outcome;
    const shown = await showAgain(call, service, messageOf(outcome));
    return shown instanceof Failure
      ? shown
      : new Failure(outcome.code, { ...outcome.details, page: shown });
  };

/** A form that this caller sends: its fields, and what is done with them. */
export const formOf =
  <Caller, Path = unknown>() =>
  <M extends Members>(
    fields: M,
    action: Handle<Call<Caller, Path, unknown, Values<M>>>,
    showAgain?: Handle<Call<Caller, Path, unknown, Values<M>>, [string]>,
  ) => ({ body: form(fields), handle: showAgain ? retried(action, showAgain) : action });

const formPage =
  (name: string, title: string) =>
  (
    { username = '', return_to }: { username?: string; return_to: string },
    message = '',
    cookies: string[] = [],
  ) => {
    const values = {
      return_to,
      username,
      passkey: render('passkey', { return_to }),
      ...again(message),
    };
    const heading = message === '' ? title : `${title}: try again`;
    return page(heading, render(name, values), message, cookies, render('script'));
  };
export const loginPage = formPage('login', 'Sign in');
/** The second step. The code of an app and a recovery code go into the same field. */
export const codePage = formPage('code', 'Second factor');
export const newPasswordPage = formPage('new-password', 'Choose a password');

/** Not a redirect: browsers apply `form-action`, which names only the portal, to each redirect after a form. */
export const continuePage = (title: string, address: string, cookies: string[]): TextReply =>
  page(title, render('continue', { address }), '', cookies, render('refresh', { address }));

export const failurePage = (one: Failure): TextReply =>
  page('That did not work', render('failure'), messageOf(one));
export const utc = (time: Date): string =>
  `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`;

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
  const last = Math.max(1, Math.ceil(total / PAGE_ROWS));
  const [previous, next] = [Math.max(1, number - 1), Math.min(last, number + 1)].map(
    (to) => `${path}${to}`,
  );
  return last === 1
    ? NOTHING
    : render('pages', { page: number, last, previous: previous ?? '', next: next ?? '' });
}
