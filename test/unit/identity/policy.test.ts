/**
 * Who may do what, as far as the tables of callers in `test/api/contract` do not show it: whose a
 * thing is, how recent a sign-in is, and what only the pages do.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CallerSession, User } from '../../../src/identity/model.ts';
import { type Action, type Caller, may, refusalOf } from '../../../src/identity/policy.ts';

const OWN = '0190c0de-0000-4000-8000-000000000001';
const OTHERS = '0190c0de-0000-4000-8000-000000000002';
const THEN = new Date(0);

/** A user who signed in ten minutes ago, by all that there is to prove. */
function callerWith(flags: Partial<User>, more: Partial<CallerSession> = {}): Caller {
  const user: User = {
    id: OWN,
    first_name: '',
    last_name: '',
    username: 'caller',
    email: 'caller@localhost',
    enabled: true,
    verified: false,
    super_admin: false,
    groups: [],
    created_at: THEN,
    updated_at: THEN,
    deleted_at: null,
    ...flags,
  };
  const session = {
    id: '0190c0de-0000-4000-8000-000000000003',
    ended: false,
    hasTemporaryPassword: false,
    age: 600,
    isProven: true,
    last_seen_is_old: false,
    user,
    ...more,
  };
  return { session, key: null, user };
}

test('only the whole id makes an owner, and neither a name nor a missing id does', () => {
  const caller = callerWith({ username: 'admin', verified: true });
  const others = ['', OWN.slice(0, -1), `${OWN} `, OWN.toUpperCase(), 'admin', OTHERS, null];
  for (const action of ['read a user', 'create a key'] as const) {
    assert.equal(may(caller, action, OWN), true, action);
    for (const id of [...others, undefined]) assert.equal(may(caller, action, id), false, action);
  }
});

test('rights are those of the user of the request, not those in the row of the session', () => {
  const { session } = callerWith({ super_admin: true });
  assert.equal(may({ ...callerWith({}), session }, 'list every user'), false);
});

const OLD = { age: 600.5 };
const ALONE = { isProven: false };
const TEMPORARY = { hasTemporaryPassword: true };
const TOO_OLD = 'signin_too_old';

/**
 * For an old session, one by the password alone, and one with a temporary password: `-` for may.
 */
const SESSIONS: ReadonlyArray<readonly [Action, old: string, alone: string, temporary: string]> = [
  ['remove factors of a user', TOO_OLD, TOO_OLD, 'forbidden'],
  ['change programs', TOO_OLD, TOO_OLD, 'forbidden'],
  ['list programs', '-', '-', '-'],
  ['secure the account of a user', TOO_OLD, TOO_OLD, 'forbidden'],
  ['change a user', '-', TOO_OLD, '-'],
];

for (const [action, ...expected] of SESSIONS) {
  test(`what a session must have proved for "${action}"`, () => {
    const codes = [OLD, ALONE, TEMPORARY].map(
      (more) => refusalOf(callerWith({ super_admin: true }, more), action, OTHERS)?.code ?? '-',
    );
    assert.deepEqual(codes, expected);
    assert.equal(may(callerWith({ super_admin: true }), action, OTHERS), true);
    // Who has no right to it is not told to sign in again.
    const stranger = callerWith({}, { ...OLD, ...ALONE, ...TEMPORARY });
    assert.equal(refusalOf(stranger, action, OTHERS)?.code, 'forbidden');
  });
}
