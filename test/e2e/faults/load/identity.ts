/**
 * A client of identity that knows what was acknowledged to it: users, passwords, sessions, keys and
 * their ends.
 */
import { choose, pick } from '../random.ts';
import {
  type Account,
  changePassword,
  checkAccount,
  createKey,
  createUser,
  type Credential,
  disableUser,
  expectFormerRejected,
  type IdentityState,
  logIn,
  logOut,
  revoke,
  revokeAll,
  sessionsOf,
  useCredential,
} from './identity-calls.ts';
import type { LoadClient } from './load.ts';
import type { Requests } from './requests.ts';

const WEIGHTS = {
  'create a user': 2,
  'log in': 5,
  'create a key': 1,
  'use a credential': 12,
  'log out': 3,
  revoke: 2,
  'use an ended credential': 5,
  'change the password': 1,
  'use a former password': 0.5,
  'revoke all of a user': 1,
  'disable a user': 0.5,
} as const;
type Action = keyof typeof WEIGHTS;

/** @param admin the session of a super administrator */
export function createIdentityClient(
  requests: Requests,
  random: () => number,
  number: number,
  admin: string,
): LoadClient {
  const state: IdentityState = { requests, number, admin, accounts: [] };
  const { accounts } = state;
  return {
    async step() {
      const usable = accounts.filter(({ isSettled, login }) => isSettled && login === 'works');
      const account = choose(random, usable);
      const action = account && accounts.length > 2 ? pick(random, WEIGHTS) : 'create a user';
      if (action === 'create a user' || !account) return createUser(state);
      if (action === 'use an ended credential') return useEnded(state, random);
      await act(state, random, account, action);
    },
    async check() {
      for (const account of accounts) await checkAccount(state, account);
    },
    summary() {
      const credentials = accounts.flatMap(({ credentials: all }) => all);
      const ended = credentials.filter(({ state: of }) => of === 'ended').length;
      return { users: accounts.length, credentials: credentials.length, ended };
    },
  };
}

async function useEnded(state: IdentityState, random: () => number): Promise<void> {
  const account = choose(random, state.accounts);
  if (!account) return;
  const ended = choose(random, withState(account.credentials, 'ended'));
  if (ended) await useCredential(state, account, ended);
}

/** Without an active session, the account logs in where an action needs one. */
async function act(
  state: IdentityState,
  random: () => number,
  account: Account,
  action: Action,
): Promise<void> {
  if (action === 'use a former password') return expectFormerRejected(state, account);
  if (action === 'revoke all of a user') return revokeAll(state, account);
  if (action === 'disable a user') return disableUser(state, account);
  const session = choose(random, withState(sessionsOf(account), 'active'));
  if (action === 'log in' || !session) return logIn(state, account);
  if (action === 'use a credential') {
    const active = choose(random, withState(account.credentials, 'active'));
    return useCredential(state, account, active ?? session);
  }
  if (action === 'change the password') return changePassword(state, account, session.token);
  if (action === 'log out') return logOut(state, account, session);
  if (action === 'revoke') return revoke(state, account, session);
  await createKey(state, account, session);
}

const withState = (credentials: readonly Credential[], state: Credential['state']) =>
  credentials.filter((credential) => credential.state === state);
