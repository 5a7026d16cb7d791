/**
 * Who may do what, as far as the tables of callers in `test/api/contract` do not show it: whose a
 * thing is, how recent a sign-in is, and what only the pages do. When sessions and keys work, who
 * may log in, and pages of what there is.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pageQuery, pageReply } from '../../../src/identity/lists.ts';
import {
  type ApiKey,
  type CallerSession,
  isActive,
  isUsable,
  mayLogIn,
  type Session,
  type User,
} from '../../../src/identity/model.ts';
import { type Action, type Caller, may, refusalOf } from '../../../src/identity/policy.ts';
import { endedText } from '../../../src/identity/sessions.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { queryParameters, validate } from '../../../src/platform/http/route/schema.ts';

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

// --- Sessions, keys and pages

const USER = { enabled: true, deleted_at: null } as User;
const SESSION = { revoked: false, logged_out: false, expired: false, user: USER } as Session;
const DISABLED = { ...USER, enabled: false };
const DELETED = { ...USER, deleted_at: THEN };

test('a session is active until one thing ends it, whoever its user is', () => {
  for (const user of [USER, { ...USER, verified: true, super_admin: true }])
    assert.equal(isActive({ ...SESSION, user }), true);
  for (const end of [
    { revoked: true },
    { logged_out: true },
    { expired: true },
    { user: DISABLED },
    { user: DELETED },
    { user: { ...DISABLED, super_admin: true } },
    // A second end does not reactivate it.
    { revoked: true, logged_out: true },
    { revoked: true, expired: true },
    { revoked: true, logged_out: true, expired: true, user: { ...DISABLED, ...DELETED } },
  ])
    assert.equal(isActive({ ...SESSION, ...end }), false, JSON.stringify(end));
});

test('a key is usable until it is revoked, expired, deleted or suspended', () => {
  const ends = { revoked: false, expired: false, deleted_at: null, suspended: false };
  const key = { ...ends, expires_at: new Date(0), user: USER } as ApiKey;
  for (const one of [key, { ...key, user_id: null, user: null }]) {
    assert.equal(isUsable(one), true);
    const ended = { revoked: true, expired: true, deleted_at: THEN, suspended: true };
    for (const [name, value] of Object.entries(ended))
      assert.equal(isUsable({ ...one, [name]: value }), false, name);
  }
});

test('a user logs in while enabled and not deleted', () => {
  const users = [USER, DISABLED, DELETED, { ...DISABLED, deleted_at: THEN }];
  assert.deepEqual(users.map(mayLogIn), [true, false, false, false]);
});

test('a message counts ended sessions exactly up to 10,000', () => {
  assert.deepEqual([0, 1, 2, 10_000, 10_001, null].map(endedText), [
    ...['0 sessions', '1 session', '2 sessions', '10000 sessions'],
    ...['More than 10,000 sessions', 'All open sessions'],
  ]);
});

test('by default, the reply is the first page with ten rows', () => {
  const read = (query: string) =>
    validate(queryParameters(pageQuery), new URLSearchParams(query), 'invalid_query');
  assert.deepEqual(read(''), { page: 1, limit: 10 });
  assert.deepEqual(read('page=7&limit=100'), { page: 7, limit: 100 });
  for (const query of ['page=0', 'limit=0', 'limit=101', 'page=1000000001'])
    assert.ok(read(query) instanceof Failure, query);
});

/** The pages that last, prev and next lead to; 0 for nowhere. */
const PAGES = [
  { page: 1, limit: 10, total: 0, pages: 0, last: 1, prev: 0, next: 0 },
  { page: 1, limit: 10, total: 1, pages: 1, last: 1, prev: 0, next: 0 },
  { page: 1, limit: 10, total: 10, pages: 1, last: 1, prev: 0, next: 0 },
  { page: 1, limit: 10, total: 11, pages: 2, last: 2, prev: 0, next: 2 },
  { page: 2, limit: 10, total: 20, pages: 2, last: 2, prev: 1, next: 0 },
  { page: 2, limit: 10, total: 21, pages: 3, last: 3, prev: 1, next: 3 },
  { page: 3, limit: 1, total: 3, pages: 3, last: 3, prev: 2, next: 0 },
  { page: 2, limit: 100, total: 101, pages: 2, last: 2, prev: 1, next: 0 },
  // Past the end: back to the last page that there is, and to the first where there is none.
  { page: 4, limit: 10, total: 30, pages: 3, last: 3, prev: 3, next: 0 },
  { page: 1_000_000_000, limit: 10, total: 30, pages: 3, last: 3, prev: 3, next: 0 },
  { page: 2, limit: 10, total: 1, pages: 1, last: 1, prev: 1, next: 0 },
  { page: 9, limit: 10, total: 0, pages: 0, last: 1, prev: 1, next: 0 },
];

test('a page has its rows, the page counts, and links that keep path, limit and filters', () => {
  for (const { page, limit, total, pages, last, prev, next } of PAGES) {
    const query = { page, limit, user: 'a&b=c d', active: undefined };
    const reply = pageReply('/api/x/', query, { rows: [1, 2], total }, (row) => `row ${row}`);
    const to = (number: number) =>
      number === 0 ? '' : `/api/x/?page=${number}&limit=${limit}&user=a%26b%3Dc+d`;
    assert.deepEqual(reply, {
      data: ['row 1', 'row 2'],
      pagination: { page, limit, total, total_pages: pages },
      links: { first: to(1), last: to(last), prev: to(prev), next: to(next) },
    });
  }
});
