/** Twenty programs behind one sign-in: what deploy/nginx and deploy/caddy must do for them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cookieFrom, PORTAL, visitorOf } from '../../support/portal.ts';
import { PASSWORD } from '../../support/users.ts';
import {
  askProxy,
  bearer,
  createCertificate,
  deployed,
  NAMES,
  NAVIGATION,
  type ProxyName,
  type ProxySetup,
  startProxy,
  startProxySetup,
  startUpstream,
  valueOf,
} from './setup.ts';

const REMOTE = ['Remote-User', 'Remote-Email', 'Remote-Groups'];
/** Every spelling of the headers that name a user. */
const FORGED = [...REMOTE, ...NAMES].flatMap((name) =>
  ['-', '_', '.'].map((mark) => [name.replaceAll('-', mark), 'forged'] as const),
);
/** The one that is for the group `staff` only. */
const OF_STAFF = 'payroll';
const FILES = { nginx: 'nginx/programs.conf', caddy: 'caddy/programs.caddyfile' };

/**
 * A user who has signed in on the sign-in page, with the cookie that a browser sends everywhere.
 */
async function signIn(setup: ProxySetup, change: object) {
  const member = await setup.addMember(change);
  const fields = { username: member.username, password: PASSWORD, return_to: '' };
  const page = await visitorOf(setup.url)('/login', { fields });
  return { ...member, cookie: ['Cookie', cookieFrom(page, '__Secure-gatehouse')] as const };
}

/** Nineteen programs for everyone and one for a group. Call at the top level of a test file. */
export async function startPrograms(name: ProxyName) {
  const origins = { RETURN_ORIGINS: 'https://*.example.org' };
  const setup = await startProxySetup({ ...PORTAL, ...origins });
  const labels = [...Array.from({ length: 19 }, (_, index) => `app${index + 1}`), OF_STAFF];
  const started = labels.map(async (label) => [label, await startUpstream()] as const);
  const programs = new Map(await Promise.all(started));
  const portOf = (label: string) => programs.get(label)?.port ?? 0;
  const ports = { 3000: setup.port, 5002: portOf(OF_STAFF) };
  const text = deployed(FILES[name], ports);
  // The lines of the example are those of each program that everyone may use.
  const [example = ''] = /^(server \{\n    server_name )?wiki\.[^}]*\}\n/m.exec(text) ?? [];
  assert.ok(example.includes('127.0.0.1:5001'));
  const ofProgram = (label: string) =>
    example.replace('wiki.', `${label}.`).replace('127.0.0.1:5001', `127.0.0.1:${portOf(label)}`);
  const included = name === 'nginx' ? deployed('nginx/program.conf', { 3000: setup.port }) : '';
  const whole = text
    .replace(example, labels.slice(0, -1).map(ofProgram).join('\n'))
    .replaceAll('include /etc/nginx/gatehouse/program.conf;', () => included);
  return {
    setup,
    programs,
    port: await startProxy(name, whole, createCertificate()),
    /** In the groups `editors` and `staff`. */
    ada: await signIn(setup, {
      username: 'ada',
      email: 'ada@example.org',
      groups: ['editors', 'staff'],
    }),
    /** In no group. */
    eve: await signIn(setup, { username: 'eve' }),
  };
}

const hostOf = (label: string) => `${label}.example.org`;

export function testPrograms(all: Awaited<ReturnType<typeof startPrograms>>): void {
  const { setup, programs, ada, eve } = all;
  const counts = () => [...programs.values()].map(({ requests }) => requests.length);

  test('without a session, each of twenty programs leads to the sign-in page and back', async () => {
    for (const label of programs.keys()) {
      const host = hostOf(label);
      const { status, headers } = await askProxy(all, { host, path: '/a?b', headers: NAVIGATION });
      assert.ok(status === 302 || status === 303, label);
      const page = new URL(headers.get('location') ?? '');
      assert.deepEqual(
        [page.origin, page.searchParams.get('return_to')],
        [PORTAL.SIGNIN_ORIGIN, `https://${host}/a?b`],
      );
      assert.equal((await askProxy(all, { host })).status, 401);
    }
    assert.deepEqual(counts(), Array(20).fill(0));
  });

  test('one sign-in opens all twenty, and each reads who it is', async () => {
    const headers = [...FORGED, ['Cookie', `theme=dark; ${ada.cookie[1]}`] as const];
    for (const [label, { requests }] of programs) {
      const answer = await askProxy(all, { host: hostOf(label), path: `/of/${label}`, headers });
      const [received = assert.fail(), ...more] = requests;
      assert.deepEqual([answer.status, received.path, more], [200, `/of/${label}`, []]);
      assert.deepEqual(
        ['X-Auth-User-Id', ...REMOTE, 'Host', 'Cookie'].map((header) => valueOf(received, header)),
        [ada.id, 'ada', 'ada@example.org', 'editors,staff', hostOf(label), 'theme=dark'],
      );
      assert.ok(!received.headers.some(([, value]) => value.includes('forged')));
    }
    // A key without a user names none.
    const { key } = await setup.addKey(setup.admin, { user_id: null });
    await askProxy(all, { host: hostOf('app2'), headers: [...FORGED, ...bearer(key)] });
    const received = programs.get('app2')?.requests.at(-1) ?? assert.fail();
    assert.equal(REMOTE.map((name) => valueOf(received, name)).join(''), '');
    assert.ok(!received.headers.some(([, value]) => value.includes('forged')));
  });

  test('a program of a group admits only its members, and a host without a program reaches none', async () => {
    const sendAs = (label: string) =>
      askProxy(all, { host: hostOf(label), headers: [eve.cookie] }).catch(() => null);
    assert.equal((await sendAs(OF_STAFF))?.status, 403);
    assert.equal((await sendAs('app1'))?.status, 200);
    const before = counts();
    const other = await sendAs('other');
    assert.ok(other === null || other.text === '' || other.status === 404);
    assert.deepEqual(counts(), before);
  });

  test('after its session is revoked, the next request to any program gets 401', async () => {
    await setup.call('DELETE', `/api/session/revoke/all/user?user=${ada.id}`, undefined);
    for (const label of programs.keys()) {
      const sent = { host: hostOf(label), headers: [ada.cookie] };
      assert.equal((await askProxy(all, sent)).status, 401, label);
    }
  });
}
