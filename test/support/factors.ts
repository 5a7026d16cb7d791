/** Second factors and links of users of the sign-in pages, used as a browser would. */
import assert from 'node:assert/strict';
import { totpCode } from '../../src/identity/factors/codes.ts';
import { attestationObjectOf, createPasskey } from './authenticator.ts';
import { cookieFrom, type Options, ORIGIN, type PortalOf, startPortal } from './portal.ts';

export const HOST = new URL(ORIGIN).hostname;
export const PENDING = '__Host-gatehouse-pending';
/** Where a passkey signs in alone, and where it is the second factor. */
export const ALONE = '/login/passkey';
export const SECOND = '/login/code/passkey';
export const ADDRESS = 'https://app.example.org/x';

function fromBase32(text: string): Buffer {
  const indexes = [...text].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter));
  const bits = indexes.map((index) => index.toString(2).padStart(5, '0')).join('');
  return Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
}
export const secretOn = (text: string) =>
  fromBase32((/<code data-copy>([A-Z2-7 ]+)<\/code>/.exec(text)?.[1] ?? '').replaceAll(' ', ''));
/** The fields of the form on a page that sets up an app. */
export const setupOn = (text: string, code: string) => ({
  code,
  setup: /name="setup" value="([^"]*)"/.exec(text)?.[1] ?? '',
});
export const codesOn = (text: string) =>
  (/<pre [^>]*>([^<]+)<\/pre>/.exec(text)?.[1] ?? '').split('\n');

/** Identity with its sign-in pages, and what its users prove there. */
export async function startSignIn(
  owner: Parameters<typeof startPortal>[0],
  environment: Readonly<Record<string, string>> = {},
) {
  const portal = await startPortal(owner, environment);
  return { ...portal, ...factorsOf(portal), ...linksOf(portal) };
}

type Portal = Pick<PortalOf, 'sql' | 'add' | 'visit' | 'post' | 'enterPassword' | 'signIn'>;

export const factorsOf = (portal: Portal) => ({
  ...storedOf(portal),
  ...codesOf(portal),
  ...passkeysOf(portal),
});

/** What is stored of a user. */
function storedOf({ sql }: Pick<Portal, 'sql'>) {
  /** Of the entries of this kind about a user, oldest first. */
  async function detailsOf(user: string, event: string): Promise<string[]> {
    const entries = await sql`select detail from identity.audit
      where user_id = ${user} and event = ${event} order by created_at`;
    return entries.map(({ detail }) => String(detail));
  }
  return {
    detailsOf,
    events: async (user: string, event: string) => (await detailsOf(user, event)).length,
    /** How many rows of a table a user has. */
    async rowsOf(table: string, user: string): Promise<number> {
      return (await sql`select from ${sql(`identity.${table}`)} where user_id = ${user}`).length;
    },
    /** As if the password had been generated, or set by an administrator. */
    makeTemporary: (user: string) => sql`
      update identity.users set password_generated = true, password_set_at = now()
      where id = ${user}`,
  };
}

/** Codes of authenticator apps. */
function codesOf({ sql, add, visit, post, enterPassword, signIn }: Portal) {
  const stepNow = async (): Promise<number> => {
    const [row] = await sql`select extract(epoch from now())::float8 as now`;
    return Math.floor(Number(row?.now) / 30);
  };
  /** Makes earlier steps acceptable again, in place of waiting. */
  const forgetSteps = (user: string) =>
    sql`update identity.totp set last_step = 0 where user_id = ${user}`;
  const codeNow = async (secret: Buffer) => totpCode(secret, await stepNow());
  const startTotp = (host: string) => post('/account/totp/start', host);
  const confirmTotp = (host: string, text: string, code: string) =>
    post('/account/totp', host, setupOn(text, code));
  async function enrol(username: string) {
    const { host } = await signIn(username);
    const { text } = await startTotp(host);
    const secret = secretOn(text);
    assert.equal(secret.length, 20);
    const confirmed = await confirmTotp(host, text, await codeNow(secret));
    assert.equal(confirmed.status, 200, confirmed.text);
    // The session has new tokens now.
    return { ...confirmed, secret, codes: codesOn(confirmed.text) };
  }
  return {
    stepNow,
    forgetSteps,
    codeNow,
    /** A code that is accepted, whichever were used before. */
    async freshCode({ id, secret }: Readonly<{ id: string; secret: Buffer }>) {
      await forgetSteps(id);
      return codeNow(secret);
    },
    startTotp,
    confirmTotp,
    enrol,
    /** A user with an app. */
    async addEnrolled(more: Record<string, unknown> = {}) {
      const user = await add(more);
      return { ...user, ...(await enrol(user.username)) };
    },
    /** The first step: a page that asks for the code, and the pending cookie. */
    async start(username: string) {
      const page = await enterPassword(username);
      assert.match(page.text, /autocomplete="one-time-code"/);
      assert.equal(page.host, '');
      return page.pending;
    },
    enterCode: (cookie: string, code: string) =>
      visit('/login/code', { fields: { code, return_to: ADDRESS }, cookie }),
  };
}

export type Passkey = ReturnType<typeof createPasskey>;
const encoded = (bytes: Buffer) => bytes.toString('base64url');
const SITE = { origin: ORIGIN, host: HOST };

function passkeysOf({ visit, post }: Pick<Portal, 'visit' | 'post'>) {
  let names = 0;
  const newBrowser = async () => cookieFrom(await visit('/login'), '__Host-gatehouse-browser');
  async function options(path: string, cookie: string) {
    const { data } = JSON.parse((await visit(path, { cookie })).text);
    return { ...data, challenge: Buffer.from(data.challenge, 'base64url') };
  }
  /** The response of a browser. @param userId null: the authenticator names no user */
  function answer(passkey: Passkey, challenge: Buffer, userId: string | null, more: object = {}) {
    const { clientData, data, signature } = passkey.signIn({ challenge, ...SITE, ...more });
    return JSON.stringify({
      id: encoded(passkey.id),
      type: 'public-key',
      clientDataJSON: encoded(clientData),
      authenticatorData: encoded(data),
      signature: encoded(signature),
      userHandle: userId ? encoded(Buffer.from(userId.replaceAll('-', ''), 'hex')) : undefined,
    });
  }
  const send = (credential: string, cookie: string, path = ALONE) =>
    post(path, cookie, { credential });
  return {
    newBrowser,
    options,
    answer,
    send,
    async register(host: string, passkey = createPasskey(), more: object = {}, rk?: boolean) {
      names += 1; // a user has no two of one name
      const { challenge } = await options('/account/passkeys', host);
      const { clientData, data } = passkey.register({ challenge, ...SITE, ...more });
      const credential = JSON.stringify({
        type: 'public-key',
        clientDataJSON: encoded(clientData),
        attestationObject: encoded(attestationObjectOf(data)),
        rk,
      });
      return post('/account/passkeys', host, { name: `my <device> ${names}`, credential });
    },
    /** A sign-in by a passkey alone, in a new browser. */
    async signInWith(passkey: Passkey, userId: string | null, more: object = {}) {
      const browser = await newBrowser();
      const { challenge } = await options(ALONE, browser);
      return send(answer(passkey, challenge, userId, more), browser);
    },
    /** A passkey after the password. */
    async proveWith(passkey: Passkey, pending: string, userId: string | null, more: object = {}) {
      const { challenge } = await options(SECOND, pending);
      return send(answer(passkey, challenge, userId, more), pending, SECOND);
    },
  };
}

/** Links that set a password. */
export const linksOf = ({ admin, call, visit }: Pick<PortalOf, 'admin' | 'call' | 'visit'>) => ({
  /** @returns the token of a new link */
  async makeLink(id: string, body: object = {}): Promise<string> {
    const { status, json, text } = await call(admin.token, 'POST', `/api/user/${id}/link`, body);
    assert.equal(status, 201, text);
    return tokenOf(json.data.link);
  },
  openLink: (token: string, more: Options = {}) => visit('/link', { fields: { token }, ...more }),
  /** @returns the cookie of the browser that has opened it */
  async beginLink(token: string): Promise<string> {
    const page = await visit('/link', { fields: { token } });
    assert.equal(page.status, 200, page.text);
    return page.pending;
  },
});
export const tokenOf = (link: string) => link.slice(link.indexOf('#') + 1);
