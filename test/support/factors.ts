/** Second factors of users of the sign-in pages, set up and used as a browser would. */
import assert from 'node:assert/strict';
import { totpCode } from '../../src/identity/factors/codes.ts';
import { createPasskey } from './authenticator.ts';
import { attestationObjectOf } from './cbor.ts';
import { cookieFrom, ORIGIN, type PortalOf } from './portal.ts';
import { PASSWORD } from './users.ts';

export const HOST = new URL(ORIGIN).hostname;
export const PENDING = '__Host-gatehouse-pending';
/** Where a passkey signs in alone, and where it is the second factor. */
export const ALONE = '/login/passkey';
export const SECOND = '/login/code/passkey';
export const ADDRESS = 'https://app.example.org/x';

function fromBase32(text: string): Buffer {
  const bits = [...text]
    .map((letter) =>
      'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0'),
    )
    .join('');
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

export type Passkey = ReturnType<typeof createPasskey>;
const json = (value: Record<string, Buffer | string | boolean>) =>
  JSON.stringify(
    Object.fromEntries(
      Object.entries(value).map(([name, part]) => [
        name,
        Buffer.isBuffer(part) ? part.toString('base64url') : part,
      ]),
    ),
  );
const around = (challenge: Buffer, more: object = {}) => ({
  challenge,
  origin: ORIGIN,
  host: HOST,
  ...more,
});

type Portal = Pick<PortalOf, 'sql' | 'visit' | 'signIn'>;

export function factorsOf(portal: Portal) {
  return { ...codesOf(portal), ...passkeysOf(portal) };
}

/** Codes of authenticator apps. */
function codesOf({ sql, visit, signIn }: Portal) {
  /** Codes of later steps: each is accepted once. */
  const stepNow = async (): Promise<number> => {
    const [row] = await sql`select extract(epoch from now())::float8 as now`;
    return Math.floor(Number(row?.now) / 30);
  };
  return {
    stepNow,
    async events(user: string, event: string): Promise<number> {
      const [row] = await sql`
        select count(*)::int as n from identity.audit where user_id = ${user} and event = ${event}`;
      return Number(row?.n);
    },
    /** Makes earlier steps acceptable again, in place of waiting. */
    forgetSteps: (user: string) =>
      sql`update identity.totp set last_step = 0 where user_id = ${user}`,
    async enrol(username: string) {
      const { host } = await signIn(username);
      const offered = await visit('/account/totp/start', { fields: {}, cookie: host });
      const secret = secretOn(offered.text);
      assert.equal(secret.length, 20);
      const confirmed = await visit('/account/totp', {
        fields: setupOn(offered.text, totpCode(secret, await stepNow())),
        cookie: host,
      });
      assert.equal(confirmed.status, 200, confirmed.text);
      // The session has new tokens now.
      return {
        secret,
        before: host,
        host: cookieFrom(confirmed, '__Host-gatehouse'),
        domain: cookieFrom(confirmed, '__Secure-gatehouse'),
        codes: codesOn(confirmed.text),
      };
    },
    /** The first step: a page that asks for the code, and the pending cookie. */
    async start(username: string) {
      const page = await visit('/login', {
        fields: { username, password: PASSWORD, return_to: ADDRESS },
      });
      assert.match(page.text, /autocomplete="one-time-code"/);
      assert.equal(cookieFrom(page, '__Host-gatehouse'), '');
      return cookieFrom(page, PENDING);
    },
    enter: (cookie: string, code: string) =>
      visit('/login/code', { fields: { code, return_to: ADDRESS }, cookie }),
  };
}

function passkeysOf({ visit }: Portal) {
  let names = 0;
  const options = async (path: string, cookie: string) => {
    const { data } = JSON.parse((await visit(path, { cookie })).text);
    return { ...data, challenge: Buffer.from(data.challenge, 'base64url') };
  };
  return {
    options,
    async register(
      host: string,
      passkey: Passkey = createPasskey(),
      more: object = {},
      rk?: boolean,
    ) {
      names += 1; // a user has no two of one name
      const { challenge } = await options('/account/passkeys', host);
      const { clientData, data } = passkey.register(around(challenge, more));
      const credential = json({
        type: 'public-key',
        clientDataJSON: clientData,
        attestationObject: attestationObjectOf(data),
        ...(rk === undefined ? {} : { rk }),
      });
      return visit('/account/passkeys', {
        fields: { name: `my <device> ${names}`, credential },
        cookie: host,
      });
    },
    answer(passkey: Passkey, challenge: Buffer, userId: string | null, more: object = {}) {
      const { clientData, data, signature } = passkey.signIn(around(challenge, more));
      const handle =
        userId === null ? {} : { userHandle: Buffer.from(userId.replaceAll('-', ''), 'hex') };
      return json({
        id: passkey.id,
        type: 'public-key',
        clientDataJSON: clientData,
        authenticatorData: data,
        signature,
        ...handle,
      });
    },
    send: (credential: string, cookie: string, path = ALONE) =>
      visit(path, { fields: { credential, return_to: '' }, cookie }),
    newBrowser: async () => cookieFrom(await visit('/login'), '__Host-gatehouse-browser'),
  };
}
