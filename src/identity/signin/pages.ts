import { sha256 } from '../../platform/crypto/token.ts';
import type { ErrorCode, Failure, TextReply } from '../../platform/http/route/errors.ts';
import { HTML, Html, NOTHING, pageHeaders, type Values } from '../../platform/http/site/html.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import { type Members, text, withoutNul } from '../../platform/http/route/schema.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { readVersion } from '../../platform/runtime/version.ts';
import { cookieOf } from '../guard.ts';
import { addressOf } from '../lists.ts';
import type { Portal } from '../settings.ts';
import type { Page } from '../store/rows.ts';
import { cookieText, isOpened, type PortalCall } from './browser.ts';
import { password, PASSKEY_FIELDS, return_to, stay } from './forms.ts';
import { formValues, type PageCall, render, renderAlert, renderIf } from './templates.ts';

/**
 * For a page whose forms work without scripts. With `no-referrer`, browsers would send them with
 * `Origin: null`.
 */
const FORM_HEADERS = { ...pageHeaders("'self'"), 'Referrer-Policy': 'same-origin' };

type PageParts = PageCall & Readonly<{ head?: Html }>;

/**
 * A page: with the way to the others, for who is signed in, and otherwise narrow. A main part
 * without a card is one.
 * @param parts with the request, the page says what was done before
 */
export function page(title: string, content: Html, parts: PageParts = {}): TextReply {
  const { head = NOTHING, repeated, request, caller, account = caller?.user?.id } = parts;
  const main = account === undefined ? content : withAccount(account, content);
  const headers = request?.headers ?? {};
  const notice = cookieOf(headers, NOTICE_COOKIE);
  const above = notice === null ? [] : [renderNotice(notice)];
  // A form shows its own failure. One without fields, or of another step, is not on the page.
  const isShown = main.text.includes('role="alert"');
  if (repeated && !isShown) above.push(renderAlert(repeated.failure));
  const again = renderIf(repeated !== undefined, 'again');
  const template = main.text.includes('class="card') ? 'page' : 'card-page';
  const narrow = renderIf(!caller?.user, 'narrow');
  const nav = navOf(parts);
  const about = aboutOf(parts);
  const { text } = render(template, { title, again, head, nav, above, main, about, narrow });
  const shown = { text, contentType: HTML, headers: FORM_HEADERS };
  const isRead = notice !== null && isOpened(headers);
  return isRead ? withCookies(shown, [cookieText(NOTICE_COOKIE, '')]) : shown;
}

/** Names the account in each form: another tab may sign in as another user before it is sent. */
function withAccount(account: string, { text }: Html) {
  const field = render('account-field', { account }).text;
  return new Html(text.replace(/<form method="post"[^>]*>/g, (tag) => tag + field));
}

function navOf({ caller }: PageParts) {
  if (!caller?.user) return NOTHING;
  const { username, super_admin } = caller.user;
  return render('nav', {
    username,
    administration: renderIf(super_admin, 'administration'),
  });
}

/** To administrators alone: the version tells an attacker what to try. */
const aboutOf = ({ caller }: PageParts) =>
  caller?.user?.super_admin ? render('about', { version: readVersion() }) : NOTHING;

const renderNotice = (cookie: string) =>
  render('notice', { notice: Buffer.from(cookie, 'base64url').toString() });

export const withCookies = (page: TextReply, cookies: readonly string[]): TextReply => ({
  ...page,
  headers: { ...page.headers, 'Set-Cookie': [...(page.headers?.['Set-Cookie'] ?? []), ...cookies] },
});

/** @param template of the main part of the page */
export const accountPage = (call: PortalCall, title: string, template: string, values: Values) =>
  page(title, render(template, values), call);

/** Says on the next page what was done. Another site cannot set it, as it could a query. */
const NOTICE_COOKIE = '__Host-gatehouse-notice';

/** Sends the browser on, so that a reload does not send the form again. */
export function done(path: string, notice: string, cookies: readonly string[] = []) {
  const all = [...cookies, cookieText(NOTICE_COOKIE, Buffer.from(notice).toString('base64url'))];
  return { text: '', contentType: HTML, headers: { Location: path, 'Set-Cookie': all } };
}

/** A page of the sign-in with one form, which has the name of its template. */
export const formPage = (
  title: string,
  name: string,
  fields: Members,
  call: PageCall,
  values: Values = {},
) => page(title, render(name, { ...values, ...formValues(name, fields, call) }), call);

export const LOGIN_FIELDS = {
  username: text({ max: 1_024, pattern: withoutNul }),
  password,
  stay,
  return_to,
};

/** The first page of the sign-in. */
export const loginPage = (portal: Portal, return_to: string, call: PageCall, notice = NOTHING) =>
  formPage('Sign in', 'login', LOGIN_FIELDS, call, {
    return_to,
    notice,
    stay: renderIf(portal.staySeconds > 0, 'stay', {
      days: Math.floor(portal.staySeconds / DAY_SECONDS),
    }),
    passkey: passkeyForm(portal, '/login/passkey', 'Use a passkey', return_to, call),
  });

/** Not where browsers offer no passkeys. */
export const passkeyForm = (
  { hasPasskeys }: Portal,
  action: string,
  words: string,
  return_to: string,
  call: PageCall,
) => {
  const values = formValues('passkey', PASSKEY_FIELDS, call);
  return renderIf(hasPasskeys, 'use-passkey', { ...values, action, words, return_to });
};

/**
 * Not a redirect: browsers apply `form-action`, which names only the portal, to each redirect after
 * a form.
 * @param way of the browser: the names of its templates
 */
export const continuePage = (
  address: string,
  way: 'continue' | 'continue-anyway' | 'sent-back' = 'continue',
  title = 'You are signed in',
) => page(title, render(way, { address }), { head: render(`refresh-${way}`, { address }) });

/** How often a browser has continued to a page, until half a minute after the last time. */
const CONTINUED_COOKIE = '__Host-gatehouse-continued';

/**
 * For a browser that is signed in already. A program that refuses the session would send it back
 * here without end. Several tabs may be opened again at once, each with a page of its own.
 */
export function continueAgain(address: string, { headers }: RequestInfo) {
  const { origin, pathname } = new URL(address);
  const digest = sha256(origin + pathname).toString('base64url');
  const [last, count] = cookieOf(headers, CONTINUED_COOKIE)?.split('.') ?? [];
  const times = last === digest ? Number(count) + 1 : 1;
  const shown = continuePage(address, times > 5 ? 'sent-back' : 'continue');
  const cookie = cookieText(CONTINUED_COOKIE, `${digest}.${times}`, '', 30);
  return isOpened(headers) ? withCookies(shown, [cookie]) : shown;
}

/** By what went wrong. */
const HEADINGS: Partial<Record<ErrorCode, string>> = {
  forbidden: 'You may not do this',
  cross_site: 'You may not do this',
  not_found: 'Not found',
  too_many_requests: 'Too many attempts',
  service_failed: 'The service does not work now',
};

/** @param call of who is signed in */
export function failurePage(failure: Failure, call: PageCall = {}) {
  const username = call.caller?.user?.username ?? '';
  const signedIn = failure.code === 'forbidden' ? 'not-allowed' : 'failed';
  const advice = render(username === '' ? 'failed-signed-out' : signedIn, { username });
  const title = HEADINGS[failure.code] ?? 'This did not work';
  return page(title, render('failure', { alert: renderAlert(failure), advice }), call);
}

/** Scripts show it in the zone of the reader. */
export function when(time: Date | null) {
  if (!time) return 'never';
  const iso = time.toISOString();
  return render('time', { iso, utc: `${iso.slice(0, 19).replace('T', ' ')} UTC` });
}

/** The first that fits: most call themselves Chrome or Safari, too, and Android itself Linux. */
const BROWSERS = [
  ['Edge', /Edg(A|iOS)?\//],
  ['Opera', /(OPR|OPT|OPX|OPiOS)\//],
  ['Samsung Internet', /SamsungBrowser\//],
  ['Vivaldi', /Vivaldi\//],
  ['Yandex', /YaBrowser\//],
  ['DuckDuckGo', /(DuckDuckGo|Ddg)\//],
  ['Firefox', /(Firefox|FxiOS|Focus)\//],
  ['Chrome', /(Chrome|CriOS)\//],
  ['Safari', /Safari\//],
] as const;
const SYSTEMS = [
  ['Android', /Android/],
  ['iPhone', /iPhone/],
  ['iPad', /iPad/],
  ['ChromeOS', /CrOS/],
  ['Windows', /Windows/],
  ['Mac OS X', /Mac OS X/],
  ['Linux', /Linux/],
] as const;

/**
 * Names that a person recognizes: a browser and its system, or otherwise the name that the program
 * sends.
 */
export function programOf(agent: string) {
  const browser = BROWSERS.find(([, form]) => form.test(agent));
  const system = SYSTEMS.find(([, form]) => form.test(agent));
  if (!browser || !system) return agent || 'Unknown program';
  return `${browser[0]} on ${system[0]}`;
}

/** Shown once: only their digests are stored. */
export const codesPage = (codes: readonly string[], next: string, call: PageCall = {}) =>
  page('Recovery codes', render('codes', { codes: codes.join('\n'), next }), call);

/** A list as CSV has an address of its own. */
export const isCsv = ({ path }: RequestInfo) => /\.csv\/?$/.test(path);
export const CSV_ROWS = { page: 1, limit: 10_000 };

/** What the template of a list needs for its filters, its length and its other pages. */
export const listValues = (path: string, fields: Members, query: ListQuery, total: number) => ({
  ...formValues('filter', fields, {}, query),
  total,
  csv: addressOf(`${path}.csv`, query),
  pages: pager(path, query, total),
});
type ListQuery = Page & object;

export function pager(path: string, query: ListQuery, total: number) {
  const last = Math.max(1, Math.ceil(total / query.limit));
  const linkTo = (page: number) => ({ address: addressOf(path, { ...query, page }) });
  const { page } = query;
  if (page > last) return render('no-page', { page, last, ...linkTo(last) });
  if (last === 1) return NOTHING;
  const previous = renderIf(page > 1, 'previous', linkTo(page - 1));
  const next = renderIf(page < last, 'next', linkTo(page + 1));
  return render('pages', { page, last, previous, next });
}
