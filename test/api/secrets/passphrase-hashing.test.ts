/**
 * Passphrases share the hashing limiter with logins: overload is rejected at once, and other
 * requests are served.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { untilSql } from '../../support/connections.ts';
import { createDatabase } from '../../support/database.ts';
import { type Answer, ask, AUTH_TOKEN, startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';

const TEXT = 'marked-password-text';
const PASSPHRASE = 'the right passphrase';

const { sql, url: databaseUrl } = await createDatabase();
// About 15 ms per hash: less than the real cost, and much more than the rest of a request.
const { url } = await startGatehouse({ after }, ['identity', 'secrets'], databaseUrl, {
  PASSWORD_SCRYPT: 'ln=13,r=8,p=1',
  PASSWORD_HASHES: '1',
});
const { encrypt, keep, decrypt, receipt, list, options } = secretsClient(url.secrets);

async function hashes(): Promise<{ running: number; waiting: number }> {
  const { text } = await ask('GET', `${url.metrics}/metrics`);
  const value = (name: string) =>
    Number(
      new RegExp(`^gatehouse_password_hashes_${name} (\\d+)$`, 'm').exec(text)?.[1] ?? Number.NaN,
    );
  return { running: value('running'), waiting: value('waiting') };
}

interface Rush {
  /** How many have no reply yet. */
  open(): number;
  readonly answers: Promise<Answer[]>;
}

/** Sends many requests at once. Resolves when `waiting` of them wait for a hash. */
async function rush(
  count: number,
  waiting: number,
  one: (number: number) => Promise<Answer>,
): Promise<Rush> {
  let open = count;
  const answers = Promise.all(
    Array.from({ length: count }, (_, number) =>
      one(number).finally(() => {
        open -= 1;
      }),
    ),
  );
  for (let seen = await hashes(); seen.waiting < waiting; seen = await hashes()) {
    assert.ok(open > 0, 'the waiting room was never so full');
    assert.ok(seen.running <= 1, `${seen.running} hashes at once`);
  }
  return { open: () => open, answers };
}

// A different account each, so that none is throttled.
const logIn = (number: number) =>
  ask('POST', `${url.identity}/api/auth/login`, {
    body: { username: `nobody-${number}`, password: 'whatever it is' },
  });
const lock = () => encrypt({ password: TEXT, passphrase: PASSPHRASE });

function assertOverloaded(answer: Answer): void {
  assert.deepEqual([answer.status, answer.json.error.code], [503, 'overloaded'], answer.text);
  assert.match(answer.headers.get('retry-after') ?? '', /^[1-9][0-9]*$/);
}

beforeEach(async () => {
  await sql`truncate secrets.secrets, secrets.throttles`;
  assert.deepEqual(await hashes(), { running: 0, waiting: 0 });
});

test('logins and passphrases take turns: a flood of either delays the other by its own number', async () => {
  const kept = await keep(TEXT, { passphrase: PASSPHRASE });
  let done = 0;
  const locks = await rush(60, 30, async (number) => {
    const answer = await (number < 10 ? decrypt(kept.id, kept.secret, PASSPHRASE) : lock());
    if (answer.status !== 503) done += 1;
    return answer;
  });
  const before = done;
  const count = 5;
  const logins = await Promise.all(Array.from({ length: count }, (_, number) => logIn(number)));
  const meanwhile = done - before;
  for (const { status } of logins) assert.equal(status, 401);
  assert.ok(locks.open() > 0, 'passphrases were still waiting');
  // One for each login, one that was running, and some until the logins had reached the queue.
  assert.ok(
    meanwhile <= 2 * count + 5,
    `${meanwhile} passphrases were hashed before ${count} logins`,
  );
  await locks.answers;
});

test('passphrases do not wait for all logins', async () => {
  const kept = await keep(TEXT, { passphrase: PASSPHRASE });
  const logins = await rush(30, 20, logIn);
  assert.equal((await decrypt(kept.id, kept.secret, PASSPHRASE)).json.password, TEXT);
  assert.equal((await lock()).status, 201);
  assert.ok(logins.open() > 0, 'logins were still waiting');
  for (const { status } of await logins.answers) assert.equal(status, 401);
});

test('encrypt: 503 with Retry-After while the hashing queue is full', async () => {
  const logins = await rush(12, 10, logIn);
  // 32 may wait, apart from logins, which have a queue of their own; a login may hold the one slot.
  const locks = await rush(60, 36, lock);
  const answers = await locks.answers;
  const refused = answers.filter(({ status }) => status !== 201);
  for (const answer of refused) assertOverloaded(answer);
  assert.ok(
    refused.length > 0 && refused.length <= 60 - 32,
    `${refused.length} of 60 were refused`,
  );
  for (const { status } of await logins.answers) assert.equal(status, 401);
  const [row] = await sql`select count(*)::int as rows from secrets.secrets`;
  assert.equal(row?.rows, 60 - refused.length);
});

test('a full hashing queue does not delay requests that need no hash', async () => {
  const free = await keep(TEXT);
  const { open, answers } = await rush(30, 20, lock);
  const made = await encrypt({ password: 'made meanwhile' });
  const expected: ReadonlyArray<readonly [answer: Answer, status: number]> = [
    [made, 201],
    [await decrypt(free.id, free.secret), 200],
    [await receipt(free.id), 200],
    [await list('?limit=1'), 200],
    [await options(), 200],
    [await ask('DELETE', `${url.secrets}/api/store/${free.id}`, { bearer: AUTH_TOKEN }), 200],
    [await ask('GET', `${url.secrets}/readyz`), 200],
  ];
  assert.ok(open() > 0, 'they were answered while others were still waiting');
  for (const [answer, status] of expected) assert.equal(answer.status, status, answer.text);
  await answers;
});

test('a wrong key or a missing passphrase costs no hash', async () => {
  const kept = await keep(TEXT, { passphrase: PASSPHRASE });
  // Few enough that the right one is not too late on a busy machine, which would be 503.
  const { open, answers } = await rush(12, 8, lock);
  let isOpened = false;
  const right = decrypt(kept.id, kept.secret, PASSPHRASE).finally(() => {
    isOpened = true;
  });
  const quick = [
    await decrypt(kept.id, randomBytes(32).toString('base64url'), PASSPHRASE),
    await decrypt(kept.id, 'no key', PASSPHRASE),
    await decrypt(kept.id, kept.secret),
  ];
  assert.deepEqual(
    quick.map(({ status }) => status),
    [404, 404, 403],
  );
  assert.ok(open() > 0 && !isOpened, 'a hash would have been behind all of these');
  assert.equal((await right).json.password, TEXT);
  // Earlier requests may still be recording their failed reads.
  assert.ok(open() <= 3, 'the right passphrase was hashed in its turn');
  await answers;
});

test('the lifetime begins after the passphrase was hashed', async () => {
  const { answers } = await rush(30, 20, () =>
    encrypt({ password: TEXT, passphrase: PASSPHRASE, expires_in: 600 }),
  );
  // Twenty are not stored yet, and none of them may have begun to expire.
  const [clock] = await sql`select clock_timestamp() + interval '600 seconds' as ends`;
  await answers;
  const [row] = await sql`
    select count(*)::int as aged from secrets.secrets
    where created_at > ${clock?.ends}::timestamptz - interval '600 seconds'
      and expires_at < ${clock?.ends}`;
  assert.equal(row?.aged, 0);
});

test('decrypt: 503 while the hashing queue is full, not counted as an attempt', async () => {
  const kept = await keep(TEXT, { passphrase: PASSPHRASE, max_reads: 1 });
  const before = [...(await sql`select * from secrets.secrets where id = ${kept.id}`)];
  let isTried = false;
  // 33 have a place, and the others take each one that becomes free.
  const flood = Array.from({ length: 60 }, async () => {
    while (!isTried) await lock();
  });
  await untilSql(async () => (await hashes()).waiting >= 32, 'the queue is full');
  const tried = await Promise.all(
    [1, 2, 3, 4].map((count) => decrypt(kept.id, kept.secret, `wrong passphrase ${count}`)),
  );
  isTried = true;
  await Promise.all(flood);
  // One may still have got a slot: then its passphrase was wrong and counts.
  const wrong = tried.filter(({ status }) => status === 403).length;
  assert.ok(wrong < tried.length);
  for (const answer of tried.filter(({ status }) => status !== 403)) assertOverloaded(answer);
  const [row] = await sql`select * from secrets.secrets where id = ${kept.id}`;
  assert.deepEqual({ ...row }, { ...before[0], failed_reads: String(wrong) });
  const [counted] =
    await sql`select coalesce(max(attempts), 0)::int as attempts from secrets.throttles`;
  assert.equal(counted?.attempts, wrong);
  assert.equal((await decrypt(kept.id, kept.secret, PASSPHRASE)).json.password, TEXT);
});
