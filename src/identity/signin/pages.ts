import { type ErrorCode, ERRORS, Failure, type TextReply } from '../../http/errors.ts';
import { FORM_HEADERS, HTML } from '../../http/pages.ts';
import { type Html, NOTHING, readTemplates } from '../../http/template.ts';

export const render = readTemplates(new URL('pages/pages.html', import.meta.url));

export type Cookies = readonly string[];
export type Message = string | null;

/** @param message what went wrong, shown first and announced by screen readers */
export function page(
  title: string, main: Html, message: Message = null, cookies: Cookies = [], head = NOTHING,
): TextReply {
  const { text } = render('page', { title, head, alert: again(message).alert, main });
  const headers = cookies.length > 0 ? { ...FORM_HEADERS, 'Set-Cookie': cookies } : FORM_HEADERS;
  return { text, contentType: HTML, headers };
}

export const invalid = (message: Message): Html => (message === null ? NOTHING : render('invalid'));
/** For a form further down: the message stands there, and its first field has the focus. */
export const again = (message: Message) => (message === null ? { alert: NOTHING, again: NOTHING, open: NOTHING }
  : { alert: render('alert', { message }), again: render('again'), open: render('open') });

/** What went wrong, and how long to wait, for a person. */
export function messageOf({ code, details }: Failure): string {
  const nameOf = (path: string) => path.replace(/^\//, '').replaceAll('_', ' ');
  const fields = (details.fields ?? []).map(({ path, message }) => `${nameOf(path)} ${message}`);
  const wait = details.retryAfterSeconds;
  if (fields.length > 0) return `${fields.join('; ')}.`;
  if (wait !== undefined) return `Too many attempts. Try again in ${Math.max(1, Math.ceil(wait))} seconds.`;
  return details.message ?? ERRORS[code].message;
}

/** The failure, on the page where the person can try again. @param show makes the page with the message */
export const tryAgain = async <Code extends ErrorCode>(
  failure: Failure<Code>, show: (message: string) => TextReply | Promise<TextReply>,
): Promise<Failure<Code>> => new Failure(failure.code, { ...failure.details, page: await show(messageOf(failure)) });

type Form = Readonly<{ username?: string; returnTo: string; message: Message }>;

const formPage = (name: string, title: string) => (
  { username = '', returnTo, message }: Form, cookies: Cookies = [],
): TextReply => {
  const passkey = render('passkey', { return_to: returnTo });
  const values = { return_to: returnTo, username, invalid: invalid(message), passkey };
  const heading = message === null ? title : `${title}: try again`;
  return page(heading, render(name, values), message, cookies, render('script'));
};
export const loginPage = formPage('login', 'Sign in');
/** The second step. The code of an app and a recovery code go into the same field. */
export const codePage = formPage('code', 'Second factor');
export const newPasswordPage = formPage('new-password', 'Choose a password');

/** Not a redirect: browsers apply `form-action`, which names only the portal, to each redirect after a form. */
export const continuePage = (title: string, address: string, cookies: Cookies): TextReply =>
  page(title, render('continue', { address }), null, cookies, render('refresh', { address }));

export const failurePage = (one: Failure): TextReply => page('That did not work', render('failure'), messageOf(one));

export const utc = (time: Date): string => `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`;

/** Shown once: only their digests are stored. */
export const codesPage = (codes: readonly string[], next: string, cookies: Cookies): TextReply =>
  page('Recovery codes', render('codes', { codes: codes.join('\n'), next, others: render('others') }), null, cookies);

export const PAGE_ROWS = 20;

/** @param path with the other parameters of the list, and `page=` at its end */
export function pager(path: string, page: number, total: number): Html {
  const last = Math.max(1, Math.ceil(total / PAGE_ROWS));
  const [previous, next] = [Math.max(1, page - 1), Math.min(last, page + 1)].map((to) => `${path}${to}`);
  return last === 1 ? NOTHING : render('pages', { page, last, previous: previous ?? '', next: next ?? '' });
}
