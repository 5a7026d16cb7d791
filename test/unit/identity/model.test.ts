/** When sessions and keys work, and who may log in. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type ApiKey,
  isActive,
  isUsable,
  mayLogIn,
  type Session,
  type User,
} from '../../../src/identity/model.ts';
import { endedText } from '../../../src/identity/sessions.ts';

const THEN = new Date('2030-01-01T00:00:00Z');

const USER: User = {
  id: '0190c0de-0000-4000-8000-000000000001',
  first_name: '',
  last_name: '',
  username: 'somebody',
  email: 'somebody@localhost',
  enabled: true,
  verified: false,
  super_admin: false,
  groups: [],
  created_at: THEN,
  updated_at: THEN,
  deleted_at: null,
};

const SESSION: Session = {
  id: '0190c0de-0000-4000-8000-000000000002',
  user_id: USER.id,
  revoked: false,
  logged_out: false,
  expires_at: THEN,
  expired: false,
  ip: '192.0.2.1',
  user_agent: null,
  last_seen_at: THEN,
  last_seen_is_old: false,
  created_at: THEN,
  updated_at: THEN,
  deleted_at: null,
  user: USER,
};

const KEY: ApiKey = {
  created_by: USER.id,
  created_by_username: USER.username,
  made_by: null,
  rights: null,
  scopes: [],
  provision_groups: [],
  suspended: false,
  id: '0190c0de-0000-4000-8000-000000000003',
  key_prefix: 'key:AAAAAAAA',
  name: '',
  groups: [],
  user_id: USER.id,
  revoked: false,
  expires_at: null,
  expired: false,
  last_used_at: null,
  last_seen_is_old: true,
  created_at: THEN,
  updated_at: THEN,
  deleted_at: null,
  user: USER,
};

/** Everything that ends a session, each by itself enough. */
const ENDS: Readonly<Record<string, (session: Session) => Session>> = {
  'is revoked': (session) => ({ ...session, revoked: true }),
  'is logged out': (session) => ({ ...session, logged_out: true }),
  'has expired': (session) => ({ ...session, expired: true }),
  'has a disabled user': (session) => ({ ...session, user: { ...session.user, enabled: false } }),
  'has a deleted user': (session) => ({ ...session, user: { ...session.user, deleted_at: THEN } }),
};

test('a session that has not ended is active for every kind of user', () => {
  assert.equal(isActive(SESSION), true);
  for (const verified of [true, false]) {
    for (const super_admin of [true, false])
      assert.equal(isActive({ ...SESSION, user: { ...USER, verified, super_admin } }), true);
  }
});

for (const [name, end] of Object.entries(ENDS)) {
  test(`a session that ${name} is not active`, () => {
    assert.equal(isActive(end(SESSION)), false);
    const privileged = { ...SESSION, user: { ...USER, verified: true, super_admin: true } };
    assert.equal(isActive(end(privileged)), false);
  });
}

test('a second end does not reactivate a session', () => {
  const ends = Object.values(ENDS);
  for (let chosen = 0; chosen < 2 ** ends.length; chosen += 1) {
    const session = ends.reduce(
      (so_far, end, index) => (chosen & (1 << index) ? end(so_far) : so_far),
      SESSION,
    );
    assert.equal(isActive(session), chosen === 0, `combination ${chosen}`);
  }
});

test('a key is usable until it is revoked, expired, deleted or suspended', () => {
  const nobodys: ApiKey = { ...KEY, user_id: null, user: null };
  for (const key of [
    KEY,
    nobodys,
    { ...KEY, expires_at: new Date(0) },
    { ...KEY, user: { ...USER, super_admin: true } },
  ])
    assert.equal(isUsable(key), true);
  for (const end of [
    { revoked: true },
    { expired: true },
    { deleted_at: THEN },
    { suspended: true },
  ]) {
    for (const key of [KEY, nobodys])
      assert.equal(isUsable({ ...key, ...end }), false, JSON.stringify(end));
  }
});

test('a user logs in while enabled and not deleted', () => {
  assert.equal(mayLogIn({ enabled: true, deleted_at: null }), true);
  assert.equal(mayLogIn({ enabled: false, deleted_at: null }), false);
  assert.equal(mayLogIn({ enabled: true, deleted_at: THEN }), false);
  assert.equal(mayLogIn({ enabled: false, deleted_at: THEN }), false);
});

test('a message counts ended sessions exactly up to 10,000', () => {
  assert.deepEqual([0, 1, 2, 10_000, 10_001, null].map(endedText), [
    '0 sessions',
    '1 session',
    '2 sessions',
    '10000 sessions',
    'More than 10,000 sessions',
    'All open sessions',
  ]);
});
