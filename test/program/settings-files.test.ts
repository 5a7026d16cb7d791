/** Variables whose values are in files, and what files and shells leave around a value. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { LONG, NEEDED, problems, readGiven as read, VARIABLES } from '../support/settings.ts';
import { wordsOf } from '../support/words.ts';

const place = mkdtempSync(join(tmpdir(), 'gatehouse-config-'));
after(() => rmSync(place, { recursive: true, force: true }));

function file(name: string, content: string | Buffer): string {
  const path = join(place, name);
  writeFileSync(path, content);
  return path;
}

test('a problem does not hide that of a variable with the same prefix', () => {
  const found = problems({
    SERVER_SECRET: undefined,
    SERVER_SECRET_PREVIOUS_FILE: join(place, 'nowhere'),
  });
  assert.ok(
    found.some((problem) => problem.startsWith('SERVER_SECRET must be set')),
    found.join('\n'),
  );
});

for (const name of Object.keys(VARIABLES)) {
  test(`${name}_FILE sets ${name}, and both together are rejected`, () => {
    assert.deepEqual(
      problems({ [name]: undefined, [`${name}_FILE`]: join(place, 'nowhere') }).filter((problem) =>
        problem.startsWith(`${name}_FILE`),
      ),
      [`${name}_FILE names a file that cannot be read (ENOENT).`],
    );
    const both = problems({ [name]: 'anything', [`${name}_FILE`]: file('both', 'anything') });
    assert.ok(
      both.includes(`${name} and ${name}_FILE are both set; remove one of them.`),
      both.join('\n'),
    );
  });
}

/** What editors, shells and files of variables leave at the ends of a value. */
const ENDS = ['', '\n', '\r\n', '\r'];

test('a byte order mark and one line end are no part of a value, nor of a file', () => {
  for (const content of ENDS.flatMap((end) => [LONG + end, `\ufeff${LONG}${end}`])) {
    const path = file('password', content);
    for (const given of [
      { SERVER_SECRET: content, ADMIN_PASSWORD: content },
      { SERVER_SECRET: undefined, SERVER_SECRET_FILE: path, ADMIN_PASSWORD_FILE: path },
      { SERVER_SECRET: undefined, SERVER_SECRET_FILE: ` ${path}\r\n`, ADMIN_PASSWORD_FILE: path },
    ]) {
      const { identity, secrets } = read(given);
      const values = [secrets?.serverSecret, identity?.admin.password];
      assert.deepEqual(values, [LONG, LONG], JSON.stringify(content));
    }
  }
});

test('spaces around a value are not meant; around a secret or a password they are refused', () => {
  for (const [before, after] of [
    [' ', ''],
    ['', ' '],
    ['\t', '\n\n'],
    ['\u00a0', '\u3000'],
    ['', ' \r\n'],
  ] as const) {
    const wrap = (text: string) => `${before}${text}${after}`;
    const config = read({
      LOG_LEVEL: wrap('warn'),
      PORT: wrap('4096'),
      TRUSTED_PROXIES: wrap('10.0.0.1'),
      SIGNIN_PAGES: wrap('on'),
      SIGNIN_ORIGIN: wrap('https://login.example.org'),
      SITE_NAME: wrap('Our site'),
      DATABASE_URL: wrap(NEEDED.DATABASE_URL),
    });
    const { LOG_LEVEL, SITE_NAME, webhook, identity } = config;
    assert.deepEqual(
      [LOG_LEVEL, SITE_NAME, webhook?.port, identity?.portal?.origin],
      ['warn', 'Our site', 4096, 'https://login.example.org'],
    );
    assert.equal(identity?.database.database, 'gatehouse');
    assert.deepEqual(problems({ SERVER_SECRET: wrap(LONG), ADMIN_PASSWORD: wrap(LONG) }), [
      'ADMIN_PASSWORD must be a text without spaces around it.',
      'SERVER_SECRET must be a text without commas, and without spaces around it.',
    ]);
  }
});

test('a value in quotation marks is refused with the reason, whatever the variable', () => {
  const quoted = (name: string) =>
    `${name} is in quotation marks. Remove them: "docker --env-file", for example, makes them a part of the value.`;
  for (const name of wordsOf(`
    DATABASE_URL SERVER_SECRET SITE_NAME AUTH_TOKEN ADMIN_PASSWORD PORT LOG_LEVEL PASSWORD_WORDS
  `)) {
    for (const text of ['"a value"', "'a value'", ' "a value"\r\n', '""', '"a", "b"']) {
      assert.deepEqual(problems({ [name]: text }), [quoted(name)], text);
      const given = { [name]: undefined, [`${name}_FILE`]: file('quoted', text) };
      assert.deepEqual(problems(given), [quoted(name)], text);
    }
    const ofFile = problems({ [name]: undefined, [`${name}_FILE`]: '"/run/x"' });
    assert.ok(ofFile.includes(quoted(`${name}_FILE`)), ofFile.join('\n'));
  }
  const { SITE_NAME } = read({ SITE_NAME: 'The "Gate\'s" house"' });
  assert.equal(SITE_NAME, 'The "Gate\'s" house"');
});

test('an empty file counts as unset', () => {
  for (const content of ['', '\n', '\r\n']) {
    const found = problems({
      SERVER_SECRET: undefined,
      SERVER_SECRET_FILE: file('empty', content),
    });
    assert.ok(
      found.length === 1 && found[0]?.startsWith('SERVER_SECRET must be set'),
      found.join('\n'),
    );
  }
});

test('a directory instead of a file is reported', () => {
  assert.ok(
    problems({ AUTH_TOKEN: undefined, AUTH_TOKEN_FILE: place }).includes(
      'AUTH_TOKEN_FILE names a file that cannot be read (EISDIR).',
    ),
  );
});

test('a file that is not UTF-8 is rejected', () => {
  const bytes = Buffer.from(
    'fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0',
    'hex',
  );
  const found = problems({ SERVER_SECRET: undefined, SERVER_SECRET_FILE: file('bytes', bytes) });
  assert.deepEqual(found, ['SERVER_SECRET_FILE names a file that is not UTF-8.']);
  // As "echo … > file" writes it in Windows PowerShell.
  const utf16 = file('utf16', Buffer.from(`\ufeff${LONG}\r\n`, 'utf16le'));
  assert.deepEqual(problems({ SERVER_SECRET: undefined, SERVER_SECRET_FILE: utf16 }), found);
});
