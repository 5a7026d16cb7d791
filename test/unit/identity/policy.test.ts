/** Who may do what: the whole table, written out for every kind of caller. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Action, type Caller, may, refusalOf } from '../../../src/identity/policy.ts';
import type { ApiKey, CallerSession, KeyRight, User } from '../../../src/identity/model.ts';

const OWN = '0190c0de-0000-4000-8000-000000000001';
const OTHERS = '0190c0de-0000-4000-8000-000000000002';
const THEN = new Date(0);
const times = { created_at: THEN, updated_at: THEN, deleted_at: null };

const userWith = (flags: Partial<User>): User => ({
  id: OWN,
  first_name: '',
  last_name: '',
  username: 'caller',
  email: 'caller@localhost',
  enabled: true,
  verified: false,
  super_admin: false,
  groups: [],
  ...times,
  ...flags,
});

const sessionOf = (user: User, more: Partial<CallerSession> = {}): CallerSession => ({
  id: '0190c0de-0000-4000-8000-000000000003',
  ended: false,
  hasTemporaryPassword: false,
  age: 600,
  isProven: true,
  last_seen_is_old: false,
  user,
  ...more,
});

const keyOf = (user: User | null): ApiKey => ({
  id: '0190c0de-0000-4000-8000-000000000004',
  created_by: null,
  created_by_username: null,
  made_by: null,
  rights: null,
  scopes: [],
  provision_groups: [],
  suspended: false,
  key_prefix: 'key:AAAAAAAA',
  name: '',
  groups: [],
  user_id: user?.id ?? null,
  revoked: false,
  expires_at: null,
  expired: false,
  last_used_at: null,
  last_seen_is_old: false,
  ...times,
  user,
});

const bySession = (flags: Partial<User>, more: Partial<CallerSession> = {}): Caller => ({
  session: sessionOf(userWith(flags), more),
  key: null,
  user: userWith(flags),
});
const byKey = (flags: Partial<User>): Caller => ({
  session: null,
  key: keyOf(userWith(flags)),
  user: userWith(flags),
});

const withoutUser = (rights: readonly KeyRight[]): Caller => ({
  session: null,
  key: { ...keyOf(null), rights },
  user: null,
});

const CALLERS: ReadonlyArray<readonly [name: string, ...callers: Caller[]]> = [
  [
    'a super administrator by session',
    bySession({ super_admin: true }),
    bySession({ super_admin: true, username: 'somebody', verified: true }),
  ],
  [
    'a super administrator by key',
    byKey({ super_admin: true }),
    byKey({ super_admin: true, verified: true }),
  ],
  ['a user by session', bySession({}), bySession({ verified: true, username: 'admin' })],
  ['a user by key', byKey({}), byKey({ verified: true, username: 'admin' })],
  ['a key without a user', withoutUser(['verify', 'read', 'revoke'])],
  ['a key that provisions', withoutUser(['provision'])],
];

const TARGETS: ReadonlyArray<readonly [name: string, ownerId: string | null | undefined]> = [
  ['what is their own', OWN],
  ["another's", OTHERS],
  ["nobody's", null],
  ["everybody's", undefined],
];

/**
 * For each of the callers, in order, what they may do it with, in the order of the targets: `x` for
 * may.
 */
type Row = readonly [
  administrator: string,
  administratorsKey: string,
  user: string,
  usersKey: string,
  keyOfNobody: string,
  provisioningKey: string,
];

// The type asks for every action, so that a new one cannot be forgotten here.
const TABLE: Readonly<Record<Action, Row>> = {
  'pass forward authentication': ['xxxx', 'xxxx', 'xxxx', 'xxxx', 'xxxx', '----'],
  'make or end a link': ['xxxx', '----', '----', '----', '----', 'xx-x'],
  'read oneself': ['x---', 'x---', 'x---', 'x---', '----', '----'],
  'list every user': ['xxxx', 'xxxx', '----', '----', 'xxxx', '----'],
  'export own data': ['x---', '----', 'x---', '----', '----', '----'],
  'delete oneself': ['x---', '----', 'x---', '----', '----', '----'],
  'remove factors of a user': ['xxxx', '----', '----', '----', '----', '----'],
  'read a user': ['xxxx', 'xxxx', 'x---', 'x---', 'xxxx', '----'],
  'create a user': ['xxxx', 'xxxx', '----', '----', '----', 'xx-x'],
  'change a user': ['xxxx', 'xxxx', '----', '----', '----', 'xx-x'],
  'change the names of a user': ['xxxx', 'xxxx', 'x---', 'x---', '----', 'xx-x'],
  'make a super administrator': ['xxxx', '----', '----', '----', '----', '----'],
  'delete a user': ['xxxx', 'xxxx', '----', '----', '----', '----'],
  'secure the account of a user': ['xxxx', '----', '----', '----', '----', '----'],
  'set the password of a user': ['xxxx', '----', '----', '----', '----', '----'],
  'change own password': ['x---', '----', 'x---', '----', '----', '----'],
  'list sessions of every user': ['xxxx', 'xxxx', '----', '----', 'xxxx', '----'],
  'list sessions of a user': ['xxxx', 'xxxx', 'x---', 'x---', 'xxxx', '----'],
  'revoke a session by its id': ['xxxx', 'xxxx', 'x---', 'x---', 'xxxx', '----'],
  'revoke sessions of a user': ['xxxx', 'xxxx', 'x---', 'x---', 'xxxx', '----'],
  'revoke sessions of every user': ['xxxx', 'xxxx', '----', '----', 'xxxx', '----'],
  'list keys of every user': ['xxxx', 'xxxx', '----', '----', '----', '----'],
  'list keys of a user': ['xxxx', 'xxxx', 'x---', 'x---', '----', 'xx-x'],
  'create a key': ['xxxx', '----', 'x---', '----', '----', 'xx-x'],
  'revoke a key': ['xxxx', 'xxxx', 'x---', 'x---', '----', 'xx-x'],
  'read the audit trail': ['xxxx', 'xxxx', '----', '----', '----', '----'],
  'list programs': ['xxxx', 'xxxx', '----', '----', '----', '----'],
  'change programs': ['xxxx', '----', '----', '----', '----', '----'],
};

// Object.entries forgets the type of the keys that was just checked.
const actions = Object.entries(TABLE) as Array<[Action, Row]>;
const decide = (caller: Caller, action: Action, ownerId: string | null | undefined) =>
  ownerId === undefined ? may(caller, action) : may(caller, action, ownerId);

for (const [action, row] of actions) {
  test(`who may "${action}"`, () => {
    for (const [column, [name, ...callers]] of CALLERS.entries()) {
      for (const [place, [target, ownerId]] of TARGETS.entries()) {
        for (const caller of callers)
          assert.equal(
            decide(caller, action, ownerId),
            row[column]?.[place] === 'x',
            `${name}, ${target}`,
          );
      }
    }
  });
}

test('the table is written out in full', () => {
  for (const [action, row] of actions) {
    assert.equal(row.length, CALLERS.length, action);
    for (const cell of row) assert.match(cell, /^[x-]{4}$/, action);
  }
});

test('only the whole id makes an owner', () => {
  for (const caller of [bySession({}), byKey({})]) {
    for (const ownerId of ['', OWN.slice(0, -1), `${OWN} `, OWN.toUpperCase(), 'caller']) {
      for (const [action, row] of actions)
        if (row[2] === 'x---')
          assert.equal(may(caller, action, ownerId), false, `${action}: ${ownerId}`);
    }
  }
});

test('the rights of a key are those that its user has now, not those of its row', () => {
  const caller = { ...byKey({}), key: keyOf(userWith({ super_admin: true })) };
  assert.equal(may(caller, 'list every user'), false);
});

/** What a key of a super administrator may do with one right. The others need a key without a list. */
const BY_RIGHT: Readonly<Record<'verify' | 'read' | 'revoke' | 'provision', readonly Action[]>> = {
  verify: ['pass forward authentication'],
  read: [
    'read oneself',
    'list every user',
    'read a user',
    'list sessions of every user',
    'list sessions of a user',
    'list keys of every user',
    'list keys of a user',
    'read the audit trail',
    'list programs',
  ],
  revoke: [
    'revoke a session by its id',
    'revoke sessions of a user',
    'revoke sessions of every user',
    'revoke a key',
  ],
  provision: [],
};

for (const [right, allowed] of Object.entries(BY_RIGHT)) {
  test(`what a key of a user with the right "${right}" may do`, () => {
    for (const [action] of actions) {
      const caller = byKey({ super_admin: true });
      const key = { ...keyOf(caller.user), rights: [right as KeyRight] };
      assert.equal(may({ ...caller, key }, action, OWN), allowed.includes(action), action);
    }
  });
}

/** What each session is missing, and the code with which it is refused. */
const OLD = { age: 600.5 };
const ALONE = { isProven: false };
const TEMPORARY = { hasTemporaryPassword: true };
const TOO_OLD = 'signin_too_old';

/** For an old session, one by the password alone, and one with a temporary password: `-` for may. */
const SESSIONS: Readonly<Record<Action, readonly [old: string, alone: string, temporary: string]>> =
  {
    'pass forward authentication': ['-', '-', '-'],
    'make or end a link': [TOO_OLD, TOO_OLD, 'forbidden'],
    'read oneself': ['-', '-', '-'],
    'list every user': ['-', '-', '-'],
    'read a user': ['-', '-', '-'],
    'create a user': ['-', TOO_OLD, '-'],
    'change a user': ['-', TOO_OLD, '-'],
    'change the names of a user': ['-', '-', '-'],
    'make a super administrator': [TOO_OLD, TOO_OLD, 'forbidden'],
    'delete a user': ['-', TOO_OLD, '-'],
    'set the password of a user': [TOO_OLD, TOO_OLD, 'forbidden'],
    'change own password': ['-', TOO_OLD, '-'],
    'export own data': ['-', TOO_OLD, '-'],
    'delete oneself': [TOO_OLD, TOO_OLD, 'forbidden'],
    'remove factors of a user': [TOO_OLD, TOO_OLD, 'forbidden'],
    'secure the account of a user': [TOO_OLD, TOO_OLD, 'forbidden'],
    'list sessions of every user': ['-', '-', '-'],
    'list sessions of a user': ['-', '-', '-'],
    'revoke a session by its id': ['-', '-', '-'],
    'revoke sessions of a user': ['-', '-', '-'],
    'revoke sessions of every user': ['-', '-', '-'],
    'list keys of every user': ['-', '-', '-'],
    'list keys of a user': ['-', '-', '-'],
    'create a key': [TOO_OLD, TOO_OLD, 'forbidden'],
    'revoke a key': ['-', '-', '-'],
    'read the audit trail': ['-', '-', '-'],
    'list programs': ['-', '-', '-'],
    'change programs': [TOO_OLD, TOO_OLD, 'forbidden'],
  };

for (const [action, row] of actions) {
  test(`what a session must have proved for "${action}"`, () => {
    const codes = [OLD, ALONE, TEMPORARY].map((more) => {
      const caller = bySession({ super_admin: true }, more);
      return refusalOf(caller, action, OWN)?.code ?? '-';
    });
    assert.deepEqual(codes, [...SESSIONS[action]]);
    // Who has no right to it is not told to sign in again.
    const stranger = bySession({}, { ...OLD, ...ALONE, ...TEMPORARY });
    if (row[2] !== 'xxxx') assert.equal(refusalOf(stranger, action, OTHERS)?.code, 'forbidden');
  });
}
