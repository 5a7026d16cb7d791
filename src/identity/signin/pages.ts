import type { RequestInfo } from '../../http/route.ts';
import { ERRORS, type Failure, type TextReply } from '../../http/errors.ts';
import {
  HTML,
  type Html,
  NOTHING,
  pageHeaders,
  readTemplates,
  type Values,
} from '../../http/html.ts';
import { cookieOf } from '../guard.ts';
import { cookieText, type SignedInUser } from './browser.ts';

export const render = readTemplates(new URL('pages/pages.html', import.meta.url));

/**
 * For a page whose forms work without scripts. With `no-referrer`, browsers would send them with
 * `Origin: null`.
 */
const FORM_HEADERS = { ...pageHeaders("'self'"), 'Referrer-Policy': 'same-origin' };

/** A page. `nav`: for who is signed in. */
export function page(title: string, main: Html, { nav = NOTHING, head = NOTHING } = {}): TextReply {
  const { text } = render('page', { title, head, nav, main });
  return { text, contentType: HTML, headers: FORM_HEADERS };
}

export const withCookies = (page: TextReply, cookies: readonly string[]): TextReply => ({
  ...page,
  headers: { ...page.headers, 'Set-Cookie': [...(page.headers?.['Set-Cookie'] ?? []), ...cookies] },
});

/** A page with the way to the others. @param template of its main part */
export function accountPage(
  { user }: SignedInUser,
  title: string,
  template: string,
  values: Values,
) {
  const administration = user.super_admin ? render('administration') : NOTHING;
  const nav = render('nav', { username: user.username, administration });
  return page(title, render(template, values), { nav });
}

/** Says on the next page what was done. Another site cannot set it, as it could a query. */
const NOTICE_COOKIE = '__Host-gatehouse-notice';

/** Sends the browser on, so that a reload does not send the form again. */
export function done(path: string, notice: string, cookies: readonly string[] = []) {
  const all = [...cookies, cookieText(NOTICE_COOKIE, Buffer.from(notice).toString('base64url'))];
  return { text: '', contentType: HTML, headers: { Location: path, 'Set-Cookie': all } };
}

/** Adds the notice, once. */
export function withNotice(page: TextReply, { headers }: RequestInfo) {
  const given = cookieOf(headers, NOTICE_COOKIE);
  if (given === null) return page;
  const notice = Buffer.from(given, 'base64url').toString();
  const shown = render('notice', { notice }).text;
  const text = page.text.replace('</h1>', (heading) => heading + shown);
  return withCookies({ ...page, text }, [cookieText(NOTICE_COOKIE, '')]);
}

/** What went wrong and how long to wait, for the user. */
export function errorMessage({ code, details }: Failure) {
  const { fields = [], retryAfterSeconds: wait } = details;
  const problems = fields.map(({ path, message }) => `${path.replace('/', '')} ${message}`);
  if (problems.length > 0) return sentence(problems.join('; '));
  if (wait === undefined) return details.message ?? ERRORS[code][1];
  const time = wait > 90 ? `${Math.ceil(wait / 60)} minutes` : `${Math.ceil(wait)} seconds`;
  return `Too many attempts. Try again in ${time}.`;
}
export const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

const TITLES = { login: 'Sign in', code: 'Second factor', 'new-password': 'Choose a password' };

/**
 * A page of the sign-in.
 * @param template `code`: for the code of an app, or a recovery code in the same field
 * @param values `notice`: above the form; `reason`: what it is for; `length`: of the shortest
 * password
 */
export function signInPage(template: keyof typeof TITLES, return_to: string, values: Values = {}) {
  const use = template === 'code' ? 'Use a passkey or security key' : 'Use a passkey';
  const passkey = render('passkey', { return_to, use });
  const main = render(template, { notice: NOTHING, return_to, passkey, ...values });
  return page(TITLES[template], main);
}

/**
 * Not a redirect: browsers apply `form-action`, which names only the portal, to each redirect after
 * a form.
 */
export const continuePage = (address: string) =>
  page('You are signed in', render('continue', { address }), {
    head: render('refresh', { address }),
  });

export const failurePage = (failure: Failure) =>
  page('Something went wrong', render('failure', { message: errorMessage(failure) }));

/** Scripts show it in the zone of the reader. */
export function when(time: Date | null) {
  if (!time) return 'never';
  const iso = time.toISOString();
  return render('time', { iso, utc: `${iso.slice(0, 16).replace('T', ' ')} UTC` });
}

/**
 * Names that a person recognizes: a browser and its system, or otherwise the name that the program
 * sends. Edge and Opera call themselves Chrome, too, and Android calls itself Linux.
 */
export function programOf(agent: string) {
  const own = /(?:Edg|OPR)(?=\/)/.exec(agent) ?? /(?:Firefox|Chrome|Safari)(?=\/)/.exec(agent);
  const system = /Android|iPhone|iPad|Windows|Mac OS X|Linux(?!.*Android)/.exec(agent);
  if (!own || !system) return agent || 'Unknown program';
  return `${own[0].replace('Edg', 'Edge').replace('OPR', 'Opera')} on ${system[0]}`;
}

/** Shown once: only their digests are stored. */
export const codesPage = (codes: readonly string[], next: string) =>
  page('Recovery codes', render('codes', { codes: codes.join('\n'), next }));

export const PAGE_ROWS = 20;

/** @param path with the other parameters of the list, and `page=` at its end */
export function pager(path: string, number: number, total: number) {
  const last = Math.ceil(total / PAGE_ROWS);
  if (last <= 1) return NOTHING;
  const linkTo = (name: string, to: number) =>
    to < 1 || to > last ? NOTHING : render(name, { address: `${path}${to}` });
  return render('pages', {
    page: number,
    last,
    previous: linkTo('previous', number - 1),
    next: linkTo('next', number + 1),
  });
}
