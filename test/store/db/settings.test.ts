/**
 * Settings on which correctness depends, where something between a service and PostgreSQL removes
 * or changes them; and passwords of roles, as a real server stores them for SCRAM.
 */
import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';
import { test, type TestContext } from 'node:test';
import { Unavailable } from '../../../src/platform/runtime/errors.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, openConnections, PURPOSES } from '../../support/connections.ts';
import { variables } from '../../support/gatehouse.ts';
import { buildProgram, runProgram } from '../../support/process.ts';
import { listenOn } from '../../support/ports.ts';

const file = await createDatabase();

/** A proxy that replaces text in what a client sends. @returns the database URL through it */
async function startReplacing(
  t: TestContext,
  ...replacements: ReadonlyArray<readonly [text: string, by: string]>
): Promise<string> {
  const server = createServer((client) => {
    const upstream = connect(Number(new URL(file.url).port), '127.0.0.1');
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const)
      one.on('error', () => {}).on('close', () => other.destroy());
    upstream.pipe(client);
    client.on('data', (chunk) => {
      const text = replacements.reduce(
        (all, [one, by]) => all.replaceAll(one, by),
        chunk.toString('latin1'),
      );
      assert.equal(text.length, chunk.length);
      upstream.write(text, 'latin1');
    });
  });
  const url = new URL(file.url);
  url.port = String(await listenOn(t, server));
  return url.href;
}

/** PostgreSQL accepts any name with a dot, and nothing reads it: the parameter is swallowed. */
const STARTUP = ['synchronous_commit\0', 'x.nchronous_commit\0'] as const;
const STATEMENT = ['"synchronous_commit":"on"', '"synchronous_commit":"no"'] as const;

test('startup parameters may be swallowed: commits are synchronous all the same', async (t) => {
  await file.sql.unsafe(
    `alter database "${new URL(file.url).pathname.slice(1)}" set synchronous_commit to off`,
  );
  const database = openConnections(t, await startReplacing(t, STARTUP), 'swallowed');
  for (const purpose of PURPOSES) {
    assert.deepEqual(
      await ask(database, purpose, `select current_setting('synchronous_commit') as commit`),
      { commit: 'on' },
      purpose,
    );
  }
});

const MESSAGE =
  'a connection pooler or proxy does not keep the settings of a connection; set its pool mode to session, or connect to PostgreSQL directly';

test('a setting that is not applied: every call is Unavailable and nothing is written', async (t) => {
  await file.sql`create table things (id integer)`;
  const database = openConnections(t, await startReplacing(t, STARTUP, STATEMENT), 'changed');
  for (const purpose of PURPOSES) {
    const calls = Array.from({ length: 20 }, () =>
      ask(database, purpose, 'insert into things values (1)').catch((error: unknown) => error),
    );
    for (const error of await Promise.all(calls)) {
      assert.ok(error instanceof Unavailable, String(error));
      assert.equal(error.message, MESSAGE);
    }
  }
  await assert.rejects(
    database.maintain((sql) => sql`insert into things values (1)`),
    { message: MESSAGE },
  );
  assert.deepEqual([...(await file.sql`select * from things`)], []);
});

test('a setting that is not applied ends the start', async (t) => {
  const url = await startReplacing(t, STARTUP, STATEMENT);
  const { code, stderr } = await runProgram(
    t,
    buildProgram(),
    ['serve', 'webhook'],
    variables(url),
  );
  assert.deepEqual([code, stderr], [1, `gatehouse: webhook: ${MESSAGE}.\n`]);
});

function urlWith(role: string, password: string): string {
  const own = new URL(file.url);
  own.username = role;
  own.password = encodeURIComponent(password);
  return own.href;
}

const PASSWORDS: ReadonlyArray<readonly [what: string, stored: string, others: readonly string[]]> =
  [
    ['of ASCII', 'p@ss:w/o?r#d%+ &', []],
    ['of letters that stay as they are', 'pässwörd', ['pa\u0308sswo\u0308rd']],
    ['with a ligature and a halfwidth mark', '\ufb01ne \uff9ex', ['fine \u3099x']],
    ['with a no-break space and others', 'a\u00a0b\u200bc\u1680d', ['a b c d', 'a\u3000b c d']],
    [
      'with a soft hyphen and other characters that are dropped',
      'soft\u00adhy\u200dphen\ufe0f',
      [],
    ],
    ['of spaces around it', '\u00a0 word \u2003', ['  word  ']],
    // Unicode 3.2 does not know the second character: SASLprep prohibits it, so nothing is changed.
    ['that SASLprep prohibits', '\ufb01\u{1f511}', []],
    ['of nothing but what is dropped', '\u00ad\u00ad', []],
  ];

for (const [index, [what, stored, others]] of PASSWORDS.entries()) {
  test(`a password ${what} connects`, async (t) => {
    const role = `password_${index}`;
    await file.sql.unsafe(`create role ${role} superuser login password '${stored}'`);
    const [row] = await file.sql`select rolpassword from pg_authid where rolname = ${role}`;
    assert.match(String(row?.rolpassword), /^SCRAM-SHA-256\$/);
    for (const password of [stored, ...others]) {
      const database = openConnections(t, urlWith(role, password), 'passwords');
      const seen = await ask(database, 'read', 'select current_user::text as role');
      assert.deepEqual(seen, { role }, JSON.stringify(password));
    }
    const wrong = openConnections(t, urlWith(role, `${stored}x`), 'passwords');
    await assert.rejects(ask(wrong, 'read', 'select 1'), /28P01: the user or the password/);
  });
}
