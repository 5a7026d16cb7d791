/** Passwords of roles, as a real server stores them for SCRAM. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { ask, openConnections } from '../../support/connections.ts';

const { url, sql } = await createDatabase();

function urlWith(role: string, password: string): string {
  const own = new URL(url);
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
    await sql.unsafe(`create role ${role} superuser login password '${stored}'`);
    const [row] = await sql`select rolpassword from pg_authid where rolname = ${role}`;
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
