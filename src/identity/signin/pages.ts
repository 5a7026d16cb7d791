import { type ErrorCode, ERRORS, Failure, type TextReply } from '../../http/errors.ts';
import { FORM_HEADERS, HTML } from '../../http/pages.ts';
import { type Html, NOTHING, readTemplates } from '../../http/template.ts';
import type { Passkey } from '../factors/store.ts';
import { base32 } from '../factors/totp.ts';
import type { AuditRecord, Session, User } from '../model.ts';
import type { PageOf } from '../store/rows.ts';

export const render = readTemplates(new URL('pages/pages.html', import.meta.url));

/** The encoder is shared with pages that make codes in the browser. */
const { qrCode }: { qrCode(text: string): boolean[][] | null } =
  await import(new URL('../../http/pages/qr.js', import.meta.url).href);

export type Cookies = readonly string[];
type Message = string | null;

/** @param message what went wrong, shown first and announced by screen readers */
export function page(
  title: string, main: Html, message: Message = null, cookies: Cookies = [], head = NOTHING,
): TextReply {
  const { text } = render('page', { title, head, alert: again(message).alert, main });
  const headers = cookies.length > 0 ? { ...FORM_HEADERS, 'Set-Cookie': cookies } : FORM_HEADERS;
  return { text, contentType: HTML, headers };
}

const invalid = (message: Message): Html => (message === null ? NOTHING : render('invalid'));
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

/** The failure, shown on the page where the person can try again. */
export const withPage = <Code extends ErrorCode>(failure: Failure<Code>, page: TextReply): Failure<Code> =>
  new Failure(failure.code, { ...failure.details, page });

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

/**
 * Not a redirect: browsers apply `form-action` to each redirect after a form, and the policy names only the portal.
 * @param address checked by `returnAddress`
 */
export const continuePage = (title: string, address: string, cookies: Cookies): TextReply =>
  page(title, render('continue', { address }), null, cookies, render('refresh', { address }));

export const failurePage = (one: Failure): TextReply => page('That did not work', render('failure'), messageOf(one));

export const utc = (time: Date): string => `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`;

/** @param since when the person signed in before: later events are new to them */
export function accountPage(
  user: User, current: string, { rows: sessions, total }: PageOf<Session>, events: readonly AuditRecord[],
  since: Date | null, message: Message,
): TextReply {
  const main = render('account', {
    ...again(message), administration: user.super_admin ? render('administration') : NOTHING, others: render('others'),
    username: user.username, email: user.email, name: `${user.first_name} ${user.last_name}`.trim() || '–',
    sessions: sessions.map((session) => sessionItem(session, session.id === current)),
    more: total > sessions.length ? render('more', { shown: sessions.length, total }) : NOTHING,
    events: events.map(({ event, detail, ip, created_at: time }) => render('event', {
      is_new: since !== null && time > since ? render('new') : NOTHING,
      what: [event.replace(/[._]/g, ' '), detail].filter(Boolean).join(': '),
      when: `${utc(time)}, from ${ip ?? 'the command line'}`,
    })),
  });
  return page('Your account', main);
}

const sessionItem = ({ id, ip, user_agent: agent, created_at, last_seen_at }: Session, isCurrent: boolean): Html =>
  render('session', {
    about: `${programOf(agent ?? '')}, from ${ip ?? 'an unknown address'}`,
    when: `signed in ${utc(created_at)}, last used ${utc(last_seen_at)}`,
    end: isCurrent ? render('current') : render('end', { id }),
  });

const [BROWSERS, SYSTEMS] = [
  ['Edg', 'OPR', 'Firefox', 'Chrome', 'Safari'], ['Android', 'iPhone', 'iPad', 'Windows', 'Mac OS X', 'Linux'],
];

/** Names that a person recognizes: a browser and its system, or else what the program says of itself. */
function programOf(agent: string): string {
  const browser = BROWSERS.find((name) => agent.includes(`${name}/`));
  const system = SYSTEMS.find((name) => agent.includes(name));
  if (!browser || !system) return agent || 'Unknown program';
  return `${{ Edg: 'Edge', OPR: 'Opera' }[browser] ?? browser} on ${system}`;
}

export function factorsPage(
  totp: 'used' | 'offered' | 'missing', passkeys: readonly Passkey[], codes: number, { returnTo, message }: Form,
  cookies: Cookies,
): TextReply {
  const main = render('factors', {
    others: render('others'), totp: render(`totp-${totp}`, { return_to: returnTo }), return_to: returnTo,
    passkeys: passkeys.map(({ id, name, created_at, last_used_at, is_backup_eligible }) => {
      const used = last_used_at ? `last used ${utc(last_used_at)}` : 'never used';
      const about = `added ${utc(created_at)}, ${used}, ${is_backup_eligible ? 'synchronized' : 'on one device'}`;
      return render('passkey-item', { name, about, id: id.toString('base64url') });
    }),
    codes, renew: totp === 'used' || passkeys.length > 0 ? render('renew') : NOTHING,
  });
  return page('Second factors', main, message, cookies, render('script'));
}

/** `action`: where the form with the first code goes. */
export type EnrolForm = Readonly<{ action: string; returnTo: string; message: Message }>;

/** With the quiet zone of four modules that readers of QR codes need. */
export function enrolPage(secret: Buffer, uri: string, { action, returnTo, message }: EnrolForm, cookies: Cookies) {
  const rows = qrCode(uri) ?? [];
  const dark = rows.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x + 4} ${y + 4}h1v1h-1z`] : [])));
  const key = (base32(secret).match(/.{1,4}/g) ?? []).join(' ');
  const values = { size: rows.length + 8, path: dark.join(''), key, action, return_to: returnTo };
  const main = render('enrol', { ...values, invalid: invalid(message) });
  return page('Set up an authenticator app', main, message, cookies);
}

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
