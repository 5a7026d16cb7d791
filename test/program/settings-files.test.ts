/** Variables whose values are in files, and what files and shells leave around a value. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { makeDirectory } from '../support/directories.ts';
import { LONG, NEEDED, problems, readGiven as read, VARIABLES } from '../support/settings.ts';
import { wordsOf } from '../support/words.ts';

const place = makeDirectory({ after }, 'config');
function file(content: string | Buffer): string {
  const path = join(place, 'value');
  writeFileSync(path, content);
  return path;
}
const ofFile = (name: string, path: string) =>
  problems({ [name]: undefined, [`${name}_FILE`]: path });

test('NAME_FILE sets every NAME, and both together are rejected', () => {
  for (const name of Object.keys(VARIABLES)) {
    const missing = `${name}_FILE names a file that cannot be read (ENOENT).`;
    assert.ok(ofFile(name, join(place, 'nowhere')).includes(missing), name);
    const both = problems({ [name]: 'anything', [`${name}_FILE`]: file('anything') });
    assert.ok(both.includes(`${name} and ${name}_FILE are both set; remove one of them.`), name);
  }
  // A problem does not hide that of a variable with the same prefix.
  const found = ofFile('SERVER_SECRET_PREVIOUS', join(place, 'nowhere'));
  assert.deepEqual([found.length, problems({ SERVER_SECRET: undefined }).length], [1, 1]);
});

/** What editors, shells and files of variables leave at the ends of a value. */
const ENDS = ['', '\n', '\r\n', '\r'];

test('a byte order mark and one line end are no part of a value, nor of a file', () => {
  for (const content of ENDS.flatMap((end) => [LONG + end, `\ufeff${LONG}${end}`])) {
    const path = file(content);
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
    ['\t', '\n\n'],
    ['\u00a0', '\u3000'],
    ['', ' \r\n'],
  ] as const) {
    const wrap = (text: string) => before + text + after;
    const { LOG_LEVEL, SITE_NAME, webhook, identity } = read({
      LOG_LEVEL: wrap('warn'),
      PORT: wrap('4096'),
      TRUSTED_PROXIES: wrap('10.0.0.1'),
      SIGNIN_PAGES: wrap('on'),
      SIGNIN_ORIGIN: wrap('https://login.example.org'),
      SITE_NAME: wrap('Our site'),
      DATABASE_URL: wrap(NEEDED.DATABASE_URL),
    });
    assert.deepEqual(
      [LOG_LEVEL, SITE_NAME, webhook?.port, identity?.portal?.origin, identity?.database.database],
      ['warn', 'Our site', 4096, 'https://login.example.org', 'gatehouse'],
    );
    assert.deepEqual(problems({ SERVER_SECRET: wrap(LONG), ADMIN_PASSWORD: wrap(LONG) }), [
      'ADMIN_PASSWORD must be a text without spaces around it.',
      'SERVER_SECRET must be a text without commas, and without spaces around it.',
    ]);
  }
});

test('a value in quotation marks is refused with the reason, whatever the variable', () => {
  const quoted = (name: string) =>
    `${name} is in quotation marks. Remove them: "docker --env-file", for example, makes them a part of the value.`;
  for (const name of wordsOf(
    'DATABASE_URL SERVER_SECRET SITE_NAME ADMIN_PASSWORD PORT LOG_LEVEL',
  )) {
    for (const text of ['"a value"', "'a value'", ' "a value"\r\n', '""', '"a", "b"']) {
      assert.deepEqual(problems({ [name]: text }), [quoted(name)], text);
      assert.deepEqual(ofFile(name, file(text)), [quoted(name)], text);
    }
    assert.ok(ofFile(name, '"/run/x"').includes(quoted(`${name}_FILE`)));
  }
  const { SITE_NAME } = read({ SITE_NAME: 'The "Gate\'s" house"' });
  assert.equal(SITE_NAME, 'The "Gate\'s" house"');
});

const NOT_UTF8 = /^SERVER_SECRET_FILE names a file that is not UTF-8\.$/;
const CONTENTS: ReadonlyArray<readonly [content: string | Buffer, said: RegExp]> = [
  ...['', '\n', '\r\n'].map((content) => [content, /^SERVER_SECRET must be set/] as const),
  [Buffer.from('fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0', 'hex'), NOT_UTF8],
  // As "echo … > file" writes it in Windows PowerShell.
  [Buffer.from(`\ufeff${LONG}\r\n`, 'utf16le'), NOT_UTF8],
];

test('an empty file counts as unset, and a directory or bytes that are no text are rejected', () => {
  for (const [content, said] of CONTENTS)
    assert.match(ofFile('SERVER_SECRET', file(content)).join(), said);
  const directory = 'AUTH_TOKEN_FILE names a file that cannot be read (EISDIR).';
  assert.ok(ofFile('AUTH_TOKEN', place).includes(directory));
});
