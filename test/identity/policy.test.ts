import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Action, type Caller, may } from '../../src/identity/policy.ts';
import type { User } from '../../src/identity/rules.ts';

const OWN = '0190c0de-0000-4000-8000-000000000001';
const OTHERS = '0190c0de-0000-4000-8000-000000000002';

function caller(flags: Partial<User>): Caller {
  const now = new Date(0);
  const user: User = {
    id: OWN,
    first_name: '',
    last_name: '',
    username: 'caller',
    email: 'caller@localhost',
    enabled: true,
    verified: false,
    super_admin: false,
    created_at: now,
    updated_at: now,
    deleted_at: null,
    ...flags,
  };
  const session = {
    id: '0190c0de-0000-4000-8000-000000000003',
    user_id: user.id,
    revoked: false,
    logged_out: false,
    expires_at: now,
    expired: false,
    created_at: now,
    updated_at: now,
    deleted_at: null,
    user,
  };
  return { session, user };
}

/** What an ordinary user may: with what is their own, with another's, with what is everybody's. */
type Row = readonly [own: boolean, others: boolean, everybodys: boolean];

// The type asks for every action, so that a new one cannot be forgotten here.
const ORDINARY: Readonly<Record<Action, Row>> = {
  'list every user': [false, false, false],
  'list sessions of every user': [false, false, false],
  'list sessions of a user': [true, false, false],
  'read a session by its token': [true, true, true],
  'revoke a session by its token': [true, true, true],
  'revoke a session by its id': [true, false, false],
  'revoke sessions of a user': [true, false, false],
  'revoke sessions of every user': [false, false, false],
};

const TARGETS: ReadonlyArray<[name: string, ownerId: string | undefined]> = [
  ['what is their own', OWN],
  ["another's", OTHERS],
  ["everybody's", undefined],
];

// Object.entries forgets the type of the keys that was just checked.
const actions = Object.entries(ORDINARY) as Array<[Action, Row]>;

for (const [action, row] of actions) {
  TARGETS.forEach(([target, ownerId], column) => {
    const expected = row[column] ?? false;

    test(`"${action}", ${target}: a user ${expected ? 'may' : 'may not'}, a super administrator may`, () => {
      const decide = (who: Caller) => (ownerId === undefined ? may(who, action) : may(who, action, ownerId));
      assert.equal(decide(caller({ super_admin: false })), expected);
      assert.equal(decide(caller({ super_admin: false, verified: true, username: 'admin' })), expected);
      assert.equal(decide(caller({ super_admin: true })), true);
    });
  });
}

test('only the whole id makes an owner', () => {
  for (const ownerId of ['', OWN.slice(0, -1), `${OWN} `, OWN.toUpperCase(), 'caller']) {
    assert.equal(may(caller({}), 'revoke sessions of a user', ownerId), false, ownerId);
  }
});
