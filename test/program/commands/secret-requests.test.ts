/** `secret request`, `secret answer`, and `secret get` with a link to keep. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import { createRequest } from '../../../src/secrets/pages/request-keys.js';
import { assertRefused, runCommand, startCommand } from '../../support/commands.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask, AUTH_TOKEN, launch } from '../../support/gatehouse.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { until } from '../../support/until.ts';

const { secrets: base, sql } = await launch(['secrets'], { SHARE_PAGES: 'on' });
const files = makeDirectory({ after }, 'requests');

const own = { GATEHOUSE_URL: base, AUTH_TOKEN };
const request = async (...words: readonly string[]) => {
  const { code, stdout, stderr } = await runCommand(['secret', 'request', ...words], own);
  assert.equal(code, 0, stderr);
  const [send = '', keep = ''] = stdout.trimEnd().split('\n');
  return { send, keep };
};
/** Without what is noted before an error. */
const answer = async (link: string, input: string, ...words: readonly string[]) => {
  const given = `${link}\n${input}`;
  const finished = await runCommand(['secret', 'answer', ...words], {}, given);
  return { ...finished, stderr: finished.stderr.replace(/^Asked for: .*\n(?=gatehouse:)/, '') };
};
const get = (input: string, ...words: readonly string[]) =>
  runCommand(['secret', 'get', ...words], {}, input);
const idOf = (link: string) => new URL(link).pathname.split('/').at(-1) ?? '';
const assertUnused = async (link: string) => {
  const rows = await sql`select from secrets.secrets where id = ${idOf(link)}`;
  assert.equal(rows.length, 0, 'nothing was sent');
};

test('a file at the limit arrives byte by byte; what cannot be sent uses nothing up', async () => {
  const path = join(files, 'a.bin');
  // ASCII: the test reads standard output as text.
  const text = randomBytes(524_288).toString('hex');
  writeFileSync(path, text);
  const large = join(files, 'large.bin');
  writeFileSync(large, Buffer.alloc(1_300_000));
  const { send, keep } = await request('a file', '--file');
  const missing = join(files, 'missing.bin');
  for (const [code, said, ...words] of [
    [2, /give --file if a file is asked for/],
    [1, /the text or file is too large for the service: nothing was sent/, '--file', large],
    [2, /--file cannot be read \(ENOENT\)/, '--file', missing],
  ] as const)
    assertRefused(await answer(send, words.length === 0 ? 'a text' : '', ...words), code, said);
  await assertUnused(send);
  assert.equal((await answer(send, '', '--file', path)).code, 0);
  const { stdout, stderr } = await get(keep);
  assert.ok(stdout === text);
  assert.equal(stderr, 'File "a.bin", 1048576 bytes.\n');
});

test('--wait prints the answer to standard output, and the links to standard error', async () => {
  const waiting = startCommand(['secret', 'request', 'x', '--wait'], own);
  const linkOf = () => /http\S+\/answer\/\S+/.exec(waiting.stderr())?.[0];
  await until(() => linkOf() !== undefined);
  assert.equal((await answer(linkOf() ?? '', 'waited for')).code, 0);
  const { code, stdout, stderr } = await waiting.ended;
  assert.deepEqual([code, stdout], [0, 'waited for\n']);
  assert.match(stderr, /\/answer\/.*\n.*\/request\//);
});

test('a link that was cut or altered is refused before anything is sent', async () => {
  const { send, keep } = await request('x');
  const whole = /the link is incomplete or has a mistake, or is of another version/;
  for (const wrong of [
    send.slice(0, -1),
    send.replace(base, 'https://'),
    send.replace(base, 'https://['),
  ])
    assertRefused(await answer(wrong, 'x'), 2, whole);
  const changed = keep.slice(0, -1) + (keep.endsWith('A') ? 'B' : 'A');
  for (const wrong of [keep.slice(0, -1), changed]) assertRefused(await get(wrong), 1, whole);
  await assertUnused(send);
});

/** A service that says whatever `change` makes of its replies, as its operator could. */
async function startAltering(t: TestContext, change: (reply: any) => object): Promise<string> {
  const { url, answer } = await startRecorder(t);
  answer(async (response, { method, target, headers, body }) => {
    const { authorization = '' } = headers;
    const real = await ask(method, base + target, {
      body,
      headers: { authorization, 'content-type': 'application/json' },
    });
    reply(real.status, change(real.json))(response);
  });
  return url;
}

const ALTERED = /the service has altered this request/;

test('a service that alters what was asked for is noticed, and nothing of it is shown', async (t) => {
  const { request: other } = await createRequest('text', 'another title');
  for (const lie of [
    { title: 'another title' },
    { kind: 'file' },
    { public_key: other.public_key },
    other,
  ])
    for (const status of ['open', 'answered', 'withdrawn']) {
      const there = await startAltering(t, (said) => ({ ...said, ...lie, status }));
      const { send, keep } = await request('x');
      const at = (link: string) => link.replace(base, there);
      if (status === 'answered') assert.equal((await answer(send, 'hunter2')).code, 0);
      for (const refused of [await answer(at(send), 'hunter2'), await get(at(keep))])
        assertRefused(refused, 1, ALTERED);
      if (status !== 'answered') await assertUnused(send);
      else assert.equal((await get(keep)).stdout, 'hunter2\n');
    }
});

test('--wait: a request that is altered meanwhile ends the command', async (t) => {
  const { request: other } = await createRequest('text', 'x');
  let replies = 0;
  const there = await startAltering(t, (said) => {
    replies += 1;
    return replies > 2 ? { ...said, public_key: other.public_key } : said;
  });
  const words = ['secret', 'request', 'x', '--wait'];
  const { code, stdout, stderr } = await runCommand(words, { ...own, GATEHOUSE_URL: there });
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, ALTERED);
});

test('another link instead of an id or a key, or an altered answer, is refused', async (t) => {
  const evil = `x\nhttps://example.org/answer/00112233-4455-4677-8899-aabbccddeeff#1.${'A'.repeat(43)}`;
  for (const [lie, ...commands] of [
    [{ id: evil }, ['put'], ['request', 'x']],
    [{ receipt: evil }, ['put'], ['request', 'x']],
    [{ secret: evil }, ['put']],
  ] as const) {
    const there = await startAltering(t, (said) => ({ ...said, ...lie }));
    for (const words of commands) {
      const given = { ...own, GATEHOUSE_URL: there };
      const refused = await runCommand(['secret', ...words], given, 'hunter2');
      assertRefused(refused, 1, /unexpected reply/);
    }
  }
  const { send, keep } = await request('x');
  assert.equal((await answer(send, 'x')).code, 0);
  const there = await startAltering(t, (said) => ({ ...said, answer_key: 'A'.repeat(87) }));
  const refused = await get(keep.replace(base, there));
  assertRefused(refused, 1, /the answer does not open with this link/);
});

test('texts of the service stay on one line', async (t) => {
  const forged = 'x\nSent. Only the link\u2028of \u202eyours\u0085\u001b[2J';
  const there = await startAltering(t, (said) => ({ ...said, status: forged }));
  const { send, keep } = await request('x');
  const answered = await answer(send.replace(base, there), 'x');
  for (const refused of [answered, await get(keep.replace(base, there))]) {
    assertRefused(refused, 1, /the request is x Sent\.|it is x Sent\./);
    assert.doesNotMatch(refused.stderr, /[^\P{C}\n]|[\p{Zl}\p{Zp}]/u);
  }
});
