/** When sessions and keys work, who may log in, and pages of what there is. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pageQuery, pageReply } from '../../../src/identity/lists.ts';
import {
  type ApiKey,
  isActive,
  isUsable,
  mayLogIn,
  type Session,
  type User,
} from '../../../src/identity/model.ts';
import { endedText } from '../../../src/identity/sessions.ts';
import { Failure } from '../../../src/platform/http/route/errors.ts';
import { queryParameters, validate } from '../../../src/platform/http/route/schema.ts';

const THEN = new Date('2030-01-01T00:00:00Z');
const USER = { enabled: true, deleted_at: null } as User;
const SESSION = { revoked: false, logged_out: false, expired: false, user: USER } as Session;
const DISABLED = { ...USER, enabled: false };
const DELETED = { ...USER, deleted_at: THEN };

test('a session is active until one thing ends it, whoever its user is', () => {
  for (const user of [USER, { ...USER, verified: true, super_admin: true }])
    assert.equal(isActive({ ...SESSION, user }), true);
  for (const end of [
    ...[{ revoked: true }, { logged_out: true }, { expired: true }, { user: DISABLED }],
    ...[{ user: DELETED }, { user: { ...DISABLED, super_admin: true } }],
    // A second end does not reactivate it.
    ...[
      { revoked: true, logged_out: true },
      { revoked: true, expired: true },
    ],
    { revoked: true, logged_out: true, expired: true, user: { ...DISABLED, ...DELETED } },
  ])
    assert.equal(isActive({ ...SESSION, ...end }), false, JSON.stringify(end));
});

test('a key is usable until it is revoked, expired, deleted or suspended', () => {
  const ends = { revoked: false, expired: false, deleted_at: null, suspended: false };
  const key = { ...ends, expires_at: new Date(0), user: USER } as ApiKey;
  for (const one of [key, { ...key, user_id: null, user: null }]) {
    assert.equal(isUsable(one), true);
    for (const end of [
      { revoked: true },
      { expired: true },
      { deleted_at: THEN },
      { suspended: true },
    ])
      assert.equal(isUsable({ ...one, ...end }), false, JSON.stringify(end));
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
