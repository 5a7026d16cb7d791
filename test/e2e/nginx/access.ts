/** What the tests of every proxy send, and as whom. */
import assert from 'node:assert/strict';
import { callerHeaders } from '../../../src/identity/verify.ts';
import { type Answer, ask, logIn } from '../../support/gatehouse.ts';
import {
  type Account,
  type HeaderFields,
  type ProxyRequest,
  type ProxySetup,
  type ReceivedRequest,
  request,
  type Upstream,
} from './setup.ts';

export interface Proxy {
  readonly port: number;
  /** The status of its replies while Gatehouse is unreachable. */
  readonly statusWithoutGatehouse: number;
}

export const bearer = (token: string): HeaderFields => [['Authorization', `Bearer ${token}`]];
export const cookie = (token: string): HeaderFields => [['Cookie', `theme=dark; session=${token}`]];

export const NAMES = Object.keys(callerHeaders({ session: null, key: null, user: null }));

/** A user with a session and a key, a key without a user, and what the program learns of each. */
export interface Access {
  readonly setup: ProxySetup;
  readonly port: number;
  readonly user: Account;
  readonly session: string;
  readonly userKey: { readonly id: string; readonly key: string };
  readonly userlessKey: { readonly id: string; readonly key: string };
  readonly bySession: Identity;
  readonly byUserKey: Identity;
  readonly byUserlessKey: Identity;
  /** Each credential with its identity. */
  readonly identities: ReadonlyArray<readonly [token: string, identity: Identity]>;
  /** Sends a request that must reach the program. */
  passes(sent: ProxyRequest): Promise<ReceivedRequest>;
  /** Sends a request that must not reach the program: every rejection goes through here. */
  rejects(status: number, sent: ProxyRequest): Promise<Answer>;
}

/** Headers by name. */
type Identity = Readonly<Record<string, string>>;

export async function createAccess(setup: ProxySetup, { port }: Proxy): Promise<Access> {
  const { url, admin, upstream } = setup;
  const user = await setup.addUser('Ольга, "名前"; 100% (a+b)=c:d\\🔑');
  const session = await logIn(url, user.username, user.password);
  const found = await ask('POST', `${url}/api/auth/session`, { body: { session } });
  const userKey = await setup.addKey(session, {});
  const userlessKey = await setup.addKey(admin, { user_id: null });
  const ofUser = {
    'x-auth-user-id': user.id,
    'x-auth-username': user.username,
    'x-auth-email': user.email,
    'x-auth-super-admin': 'false',
  };
  const bySession = { ...ofUser, 'x-auth-session-id': String(found.json.data.id) };
  const byUserKey = { ...ofUser, 'x-auth-key-id': userKey.id };
  const byUserlessKey = { 'x-auth-super-admin': 'false', 'x-auth-key-id': userlessKey.id };
  const identities = [
    [session, bySession],
    [userKey.key, byUserKey],
    [userlessKey.key, byUserlessKey],
  ] as const;
  return {
    setup,
    port,
    user,
    session,
    userKey,
    userlessKey,
    bySession,
    byUserKey,
    byUserlessKey,
    identities,
    passes: (sent) => expectPassed(upstream, port, sent),
    rejects: (status, sent) => expectRejected(upstream, port, status, sent),
  };
}

export async function expectPassed(
  upstream: Upstream,
  port: number,
  sent: ProxyRequest,
): Promise<ReceivedRequest> {
  const count = upstream.requests.length;
  const answer = await request(port, sent);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(upstream.requests.length, count + 1);
  const exposed = [...answer.headers.keys()].filter((name) => name.startsWith('x-auth'));
  assert.deepEqual(exposed, [], 'the identity goes to the program and not to the client');
  const received = upstream.requests[count];
  assert.ok(received);
  return received;
}

export async function expectRejected(
  upstream: Upstream,
  port: number,
  status: number,
  sent: ProxyRequest,
): Promise<Answer> {
  const count = upstream.requests.length;
  const answer = await request(port, sent);
  assert.equal(answer.status, status, answer.text);
  assert.equal(upstream.requests.length, count, 'the program received a rejected request');
  return answer;
}
