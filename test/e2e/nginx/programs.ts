/** Twenty programs behind one sign-in: what deploy/nginx and deploy/caddy must do for them. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ask, logIn } from '../../support/gatehouse.ts';
import { cookieFrom, PORTAL, visitorOf } from '../../support/portal.ts';
import { root } from '../../support/process.ts';
import { bearer, NAMES } from './access.ts';
import {
  type HeaderFields,
  type ProxySetup,
  type ReceivedRequest,
  startProxySetup,
  startUpstream,
  type Upstream,
} from './setup.ts';
import { askProxy, type Certificate, createCertificate } from './tls.ts';

const REMOTE = ['Remote-User', 'Remote-Email', 'Remote-Groups'];
const PASSWORD = 'a passphrase for people';
/** The one that is for the group `staff` only. */
const OF_STAFF = 'payroll';

/** Like a browser that opens a page. */
const NAVIGATION: HeaderFields = [
  ['Accept', 'text/html,*/*'],
  ['Sec-Fetch-Mode', 'navigate'],
  ['Sec-Fetch-Dest', 'document'],
];

export interface Programs {
  readonly setup: ProxySetup;
  readonly certificate: Certificate;
  /** By the first label of their host. */
  readonly programs: ReadonlyMap<string, Upstream>;
}

/** Nineteen programs for everyone and one for a group. Call at the top level of a test file. */
export async function startPrograms(): Promise<Programs> {
  const origins = { RETURN_ORIGINS: 'https://*.example.org', PASSWORD_SCRYPT: 'ln=4,r=8,p=1' };
  const names = [...Array.from({ length: 19 }, (_, index) => `app${index + 1}`), OF_STAFF];
  return {
    setup: await startProxySetup({ ...PORTAL, ...origins }),
    certificate: createCertificate(),
    programs: new Map(
      await Promise.all(names.map(async (name) => [name, await startUpstream()] as const)),
    ),
  };
}

/** A file of `deploy/`, with the address of this Gatehouse. */
export const fileOf = (file: string, { setup }: Programs) =>
  readFileSync(join(root, 'deploy', file), 'utf8').replaceAll(
    '127.0.0.1:3000',
    `127.0.0.1:${setup.gatehouse.port}`,
  );

/** The same, with the lines of its program `wiki` for each program that everyone may use. */
export function fileFor(file: string, all: Programs): string {
  const { programs } = all;
  const text = fileOf(file, all);
  const [example = ''] = /^(server \{\n    server_name )?wiki\.[^}]*\}\n/m.exec(text) ?? [];
  const open = [...programs].filter(([name]) => name !== OF_STAFF);
  const blocks = open.map(([name, { port }]) =>
    example.replace('wiki.', `${name}.`).replace('127.0.0.1:5001', `127.0.0.1:${port}`),
  );
  assert.ok(example.includes('127.0.0.1:5001'));
  return text
    .replace(example, blocks.join('\n'))
    .replace('127.0.0.1:5002', `127.0.0.1:${programs.get(OF_STAFF)?.port}`);
}

interface Person {
  readonly id: string;
  readonly username: string;
  readonly email: string;
  /** The cookie of the session, as a browser sends it to every program. */
  readonly cookie: readonly [string, string];
}

/** A user who has signed in on the sign-in page. */
async function signedIn(
  { url, admin, addUser }: ProxySetup,
  name: string,
  groups: readonly string[],
): Promise<Person> {
  const { id, username, email, password } = await addUser(name, `${name}@example.org`);
  const token = await logIn(url, username, password);
  const chosen = { current_password: password, new_password: PASSWORD };
  const changed = await ask('POST', `${url}/api/auth/password`, { bearer: token, body: chosen });
  assert.equal(changed.status, 200, changed.text);
  const body = { groups };
  const joined = await ask('PATCH', `${url}/api/user/${id}`, { bearer: admin, body });
  assert.equal(joined.status, 200, joined.text);
  const fields = { username, password: PASSWORD, return_to: '' };
  const page = await visitorOf(url)('/login', { fields });
  return { id, username, email, cookie: ['Cookie', cookieFrom(page, '__Secure-gatehouse')] };
}

const valueOf = ({ headers }: ReceivedRequest, name: string) =>
  headers.find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1] ?? '';

interface Access {
  readonly all: Programs;
  readonly proxy: { readonly port: number };
  /** In the groups `editors` and `staff`. */
  readonly ada: Person;
  /** In no group. */
  readonly eve: Person;
}

const hostOf = (name: string) => `${name}.example.org`;
const receivedBy = ({ programs }: Programs, name: string) => programs.get(name)?.requests ?? [];

export async function testPrograms(all: Programs, proxy: { readonly port: number }): Promise<void> {
  const ada = await signedIn(all.setup, 'ada', ['editors', 'staff']);
  const eve = await signedIn(all.setup, 'eve', []);
  const access = { all, proxy, ada, eve };
  addSignInTest(access);
  addIdentityTest(access);
  addGroupTest(access);
  addForgeryTest(access);
  addUnknownHostTest(access);
  addRevocationTest(access);
}

function addSignInTest({ all, proxy }: Access): void {
  const { programs } = all;
  test('without a session, each of twenty programs leads to the sign-in page and back', async () => {
    assert.equal(programs.size, 20);
    for (const name of programs.keys()) {
      const sent = { host: hostOf(name), path: '/a?b=c', headers: NAVIGATION };
      const { status, headers } = await askProxy(proxy, sent);
      assert.ok(status === 302 || status === 303, name);
      const page = new URL(headers.get('location') ?? '');
      assert.equal(page.origin, PORTAL.SIGNIN_ORIGIN);
      assert.equal(page.searchParams.get('return_to'), `https://${hostOf(name)}/a?b=c`);
      assert.equal((await askProxy(proxy, { host: hostOf(name) })).status, 401);
      assert.equal(receivedBy(all, name).length, 0);
    }
  });
}

function addIdentityTest({ all, proxy, ada }: Access): void {
  const { programs } = all;
  test('one sign-in opens all twenty, and each reads who it is', async () => {
    for (const name of programs.keys()) {
      const forged = [...NAMES, ...REMOTE].map((header) => [header, 'forged'] as const);
      const cookies = [['Cookie', `theme=dark; ${ada.cookie[1]}`]] as const;
      const answer = await askProxy(proxy, {
        host: hostOf(name),
        path: `/of/${name}`,
        headers: [...forged, ...cookies],
      });
      assert.equal(answer.status, 200, name);
      const [received, ...more] = receivedBy(all, name);
      assert.ok(received && more.length === 0, name);
      assert.equal(received.path, `/of/${name}`);
      assert.deepEqual(
        ['X-Auth-User-Id', ...REMOTE, 'Host', 'Cookie'].map((header) => valueOf(received, header)),
        [ada.id, ada.username, 'ada@example.org', 'editors,staff', hostOf(name), 'theme=dark'],
      );
      assert.ok(!received.headers.some(([, value]) => value.includes('forged')));
    }
  });
}

function addGroupTest({ proxy, eve }: Access): void {
  test('a program of a group admits only its members', async () => {
    const statusOf = async (name: string) =>
      (await askProxy(proxy, { host: hostOf(name), headers: [eve.cookie] })).status;
    assert.deepEqual([await statusOf(OF_STAFF), await statusOf('app1')], [403, 200]);
  });
}

function addForgeryTest({ all, proxy }: Access): void {
  const { setup } = all;
  test('no spelling of Remote-User and no header of a client names a user', async () => {
    const { key } = await setup.addKey(setup.admin, { user_id: null });
    const spellings = [...REMOTE, ...NAMES].flatMap((name) =>
      ['-', '_', '.'].map((mark) => [name.replaceAll('-', mark), 'forged'] as const),
    );
    const headers = [...spellings, ...bearer(key)];
    assert.equal((await askProxy(proxy, { host: hostOf('app2'), headers })).status, 200);
    const received = receivedBy(all, 'app2').at(-1);
    assert.ok(received);
    assert.ok(!received.headers.some(([, value]) => value.includes('forged')));
    assert.deepEqual(
      REMOTE.map((name) => valueOf(received, name)),
      ['', '', ''],
    );
  });
}

function addUnknownHostTest({ all, proxy, ada }: Access): void {
  const { programs } = all;
  test('a host that no program has reaches none', async () => {
    const before = [...programs.values()].map(({ requests }) => requests.length);
    const sent = { host: 'other.example.org', headers: [ada.cookie] };
    const answer = await askProxy(proxy, sent).catch(() => undefined);
    assert.ok(answer === undefined || answer.text === '' || answer.status === 404);
    assert.deepEqual(
      [...programs.values()].map(({ requests }) => requests.length),
      before,
    );
  });
}

function addRevocationTest({ all, proxy, ada }: Access): void {
  const { programs, setup } = all;
  test('after its session is revoked, the next request to any program gets 401', async () => {
    const path = `/api/session/revoke/all/user?user=${ada.id}`;
    const ended = await ask('DELETE', setup.url + path, { bearer: setup.admin });
    assert.equal(ended.status, 200, ended.text);
    for (const name of programs.keys()) {
      const sent = { host: hostOf(name), headers: [ada.cookie] };
      assert.equal((await askProxy(proxy, sent)).status, 401, name);
    }
  });
}
