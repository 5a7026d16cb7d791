/**
 * Settings on which correctness depends, where something between a service and PostgreSQL removes
 * or changes them; and passwords of roles, as a real server stores them for SCRAM.
 */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, openConnections, PURPOSES, untilSql } from '../../support/connections.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { listenOn } from '../../support/ports.ts';
import { createRelay } from '../../support/relay.ts';

const file = await createDatabase();
await file.sql`create sequence turns maxvalue 4 cycle`;
const { port, pathname } = new URL(file.url);

function urlWith(part: 'port' | 'username' | 'password', value: string, base = file.url) {
  const url = new URL(base);
  url[part] = value;
  return url.href;
}

type Replacement = readonly [text: string, by: string];
/** PostgreSQL accepts any name with a dot, and nothing reads it: the parameter is swallowed. */
const STARTUP = ['synchronous_commit\0', 'x.nchronous_commit\0'] as const;
const STATEMENT = ['"synchronous_commit":"on"', '"synchronous_commit":"no"'] as const;

/** @returns the database URL through a proxy that replaces text in what a client sends */
async function startReplacing(t: TestContext, ...replacements: readonly Replacement[]) {
  const replaced = (sent: Buffer) =>
    replacements.reduce((text, [one, by]) => text.replaceAll(one, by), sent.toString('latin1'));
  const relay = createRelay(Number(port), (sent) => Buffer.from(replaced(sent), 'latin1'));
  return urlWith('port', String(await listenOn(t, relay)));
}

test('startup parameters may be swallowed: commits are synchronous all the same', async (t) => {
  await file.sql.unsafe(`alter database ${pathname.slice(1)} set synchronous_commit to off`);
  const database = openConnections(t, await startReplacing(t, STARTUP), 'swallowed');
  for (const purpose of PURPOSES) {
    const found = await ask(database, purpose, `select current_setting('synchronous_commit') as c`);
    assert.deepEqual(found, { c: 'on' }, purpose);
  }
});

const POOLED =
  'a connection pooler or proxy does not keep the settings of a connection; set its pool mode to session, or connect to PostgreSQL directly';

test('a setting that is not applied: no call is made, nothing is written, and nothing starts', async (t) => {
  await file.sql`create table things (id integer)`;
  const url = await startReplacing(t, STARTUP, STATEMENT);
  const database = openConnections(t, url, 'changed');
  for (const purpose of PURPOSES) {
    const calls = [1, 2, 3].map((id) =>
      ask(database, purpose, `insert into things values (${id})`),
    );
    await Promise.all(calls.map((call) => assert.rejects(call, { message: POOLED })));
  }
  await assert.rejects(
    database.maintain((sql) => sql`insert into things values (1)`),
    { message: POOLED },
  );
  assert.deepEqual([...(await file.sql`select * from things`)], []);
  await assert.rejects(startGatehouse(t, ['webhook'], url), { message: `webhook: ${POOLED}.` });
});

const PROCESS = 'pg_backend_pid() as pid';

/** What each question has for an answer behind a pooler. The first is of the first connection. */
for (const [what, answer, isKept] of [
  ['its own process, other than it said at the start', 'pg_backend_pid()+1', true],
  ['the process of the other one', '7', false],
  ['one process after the other', `nextval('turns')`, false],
  ['two processes in turn, and the other one its own', `nextval('turns')/2`, false],
  ['its own process, and the other one two in turn', `nextval('turns')%3`, false],
] as const) {
  test(`a pooler gives a connection ${what}`, async (t) => {
    await file.sql`alter sequence turns restart`;
    // As long as what it replaces: a message begins with its length.
    const replacement = `${answer} pid`.padEnd(PROCESS.length);
    const url = await startReplacing(t, [PROCESS, replacement]);
    const answered = ask(openConnections(t, url, 'pooled'), 'read', 'select 1 as one');
    if (isKept) assert.deepEqual(await answered, { one: 1 });
    else await assert.rejects(answered, { message: POOLED });
    const open = () => file.sql`
      select from pg_stat_activity where application_name = 'gatehouse-pooled'`;
    await untilSql(async () => (await open()).length === Number(isKept), 'the others are closed');
  });
}

const PASSWORDS: ReadonlyArray<readonly [stored: string, ...others: string[]]> = [
  ['p@ss:w/o?r#d%+ &'],
  ['pässwörd', 'pa\u0308sswo\u0308rd'],
  ['\ufb01ne \uff9ex', 'fine \u3099x'],
  ['a\u00a0b\u200bc\u1680d', 'a b c d', 'a\u3000b c d'],
  ['soft\u00adhy\u200dphen\ufe0f', 'softhyphen'],
  ['\u00a0 word \u2003', '  word  '],
  // Unicode 3.2 does not know the second character: SASLprep prohibits it, so nothing is changed.
  ['\ufb01\u{1f511}'],
  // Nothing but what is dropped.
  ['\u00ad\u00ad'],
];

for (const [index, [stored, ...others]] of PASSWORDS.entries()) {
  test(`a role with the password ${JSON.stringify(stored)} connects`, async (t) => {
    const role = `${pathname.slice(1)}_${index}`;
    await file.sql.unsafe(`create role ${role} superuser login password '${stored}'`);
    const open = (password: string) => {
      const url = urlWith('password', encodeURIComponent(password), urlWith('username', role));
      return ask(openConnections(t, url, 'passwords'), 'read', 'select current_user::text as role');
    };
    for (const password of [stored, ...others]) assert.deepEqual(await open(password), { role });
    await assert.rejects(open(`${stored}x`), /28P01: the user or the password/);
  });
}
