/** What the commands send, to which host, and how they handle replies that are not Gatehouse's. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { reply, startRecorder } from '../../support/recorder.ts';

const ID = '7584cfab-6d77-44db-8886-e100c5e58a6a';
const KEY = 'OldUnEuCpgjgjUQetmDcow6j32ZmeaD014L851u2WgI';
const AUTH_TOKEN = 'marked-token-0123456789abcdefghijklmnopqrs';
const STORED = { id: ID, secret: KEY, expires_at: null };
const run = (words: readonly string[], url: string, input = `${KEY}\n`) =>
  runCommand(['secret', ...words], { GATEHOUSE_URL: url, AUTH_TOKEN }, input);
const failure = (code: string, message: string, more: object = {}) => ({
  error: { code, message, ...more },
});

test('a link: sent to its own host, without the token', async (t) => {
  const home = await startRecorder(t);
  const foreign = await startRecorder(t);
  foreign.answer(reply(200, { password: 'theirs' }));
  const { code, stdout } = await run(['get', `${foreign.url}/s/${ID}`], home.url);
  assert.deepEqual([code, stdout, home.received], [0, 'theirs\n', []]);
  const requests = foreign.received.map(({ method, target, body }) => [method, target, body]);
  assert.deepEqual(requests, [['POST', `/s/${ID}`, JSON.stringify({ secret: KEY })]]);
  assert.ok(!JSON.stringify(foreign.received).includes(AUTH_TOKEN));
});

test('the token is in a header; key, passphrase and text are in the body, never in the URL', async (t) => {
  const home = await startRecorder(t);
  const replied = { ...STORED, share_pages: false, status: 'stored', password: 'x' };
  home.answer(reply(200, replied));
  const put = ['put', '--no-end-to-end', '--passphrase', '--expires-in', '1h', '--max-reads', '2'];
  assert.equal((await run(put, home.url, 'marked-words\nmarked-text')).code, 0);
  for (const words of ['get', 'status', 'delete'])
    assert.equal((await run([words, ID], home.url)).code, 0);
  assert.deepEqual(
    home.received.map(({ method, target }) => `${method} ${target}`),
    [
      'GET /api/store/options',
      'POST /api/store/encrypt',
      `POST /api/store/decrypt?id=${ID}`,
      `GET /api/store/${ID}`,
      `DELETE /api/store/${ID}`,
    ],
  );
  assert.deepEqual(JSON.parse(home.received[1]?.body ?? ''), {
    password: 'marked-text',
    expires_in: 3_600,
    max_reads: 2,
    passphrase: 'marked-words',
  });
  for (const { headers, target } of home.received) {
    const { authorization, ...others } = headers;
    assert.equal(authorization, `Bearer ${AUTH_TOKEN}`);
    for (const mark of ['marked-', KEY])
      assert.ok(!JSON.stringify([others, target]).includes(mark));
  }
});

test('put: no reply of the service turns end-to-end encryption off', async (t) => {
  const home = await startRecorder(t);
  for (const share_pages of [false, true, undefined, null]) {
    home.answer(reply(200, { share_pages, ...STORED }));
    const put = await run(['put', '--passphrase'], home.url, 'marked-words\nmarked-text');
    assert.equal(put.code, 0, put.stderr);
    assert.match(put.stderr, /^Stored\. (Link|Id and key) \(shown only once\):\n$/);
  }
  assert.equal(home.received.length, 8);
  assert.doesNotMatch(JSON.stringify(home.received), /marked-(words|text)/);
  // Nothing is sent before the options are known.
  home.answer(reply(503, failure('overloaded', 'The service is busy.')));
  const refused = await run(['put'], home.url, 'marked-text');
  assertRefused(refused, 1, /^gatehouse: The service is busy\.\n$/);
  assert.equal(home.received.at(-1)?.target, '/api/store/options');
});

const UNEXPECTED =
  /^gatehouse: unexpected reply: is GATEHOUSE_URL, or the link, a Gatehouse secrets service\?\n$/;

test('redirects are not followed', async (t) => {
  const home = await startRecorder(t);
  const foreign = await startRecorder(t);
  foreign.answer(reply(200, { password: 'theirs', share_pages: false, status: 'x', ...STORED }));
  // For 307 and 308 a client would resend the body.
  for (const [status, ...words] of [
    [302, 'get', ID],
    [307, 'get', `${home.url}/s/${ID}`],
    [308, 'put'],
    [301, 'status', ID],
  ] as const) {
    home.answer((response, { target }) =>
      reply(status, '', { location: `${foreign.url}${target}` })(response),
    );
    assertRefused(await run(words, home.url), 1, UNEXPECTED);
  }
  assert.deepEqual(foreign.received, []);
});

test('an unexpected reply is exit 1, and nothing is printed', async (t) => {
  const home = await startRecorder(t);
  for (const [status, body] of [
    [200, '<!doctype html><title>Welcome</title>'],
    [404, '<h1>Not Found</h1>'],
    [502, '<h1>Bad Gateway</h1>'],
    [200, ''],
    [200, '{"password": "x'],
    [200, [1, 2]],
    [200, '7'],
    [200, 'null'],
    [200, { password: 5 }],
    [200, {}],
    [400, { error: 'bad request' }],
    [400, { error: { message: 'marked' } }],
    [500, { message: 'marked' }],
  ] as const) {
    home.answer(reply(status, body));
    assertRefused(await run(['get', `${home.url}/s/${ID}`], home.url), 1, UNEXPECTED);
    assertRefused(await run(['put'], home.url), 1, UNEXPECTED);
  }
  home.answer(reply(200, { id: ID }));
  for (const words of ['status', 'delete'])
    assertRefused(await run([words, ID], home.url), 1, UNEXPECTED);
});

test('no reply, or one that was cut off, is exit 1, and says if a read may be used up', async (t) => {
  const home = await startRecorder(t);
  home.answer((response) => response.destroy());
  const secured = `https://127.0.0.1:${home.port}`;
  for (const [words, url, origin = url] of [
    [['put'], home.url],
    [['get', ID], home.url],
    [['get', `${home.url}/s/${ID}`], 'http://127.0.0.1:1', home.url],
    [['get', ID], 'http://127.0.0.1:1'],
    [['get', `${secured}/s/${ID}`], home.url, secured],
  ] as const) {
    const said = `^gatehouse: ${origin} did not answer( \\([A-Z_]+\\))?; check GATEHOUSE_URL or the link\n$`;
    assertRefused(await run(words, url), 1, new RegExp(said));
  }
  for (const [status, said] of [
    [200, /^gatehouse: the reply was cut off; a read may have been used up\n$/],
    [502, UNEXPECTED],
  ] as const) {
    home.answer((response) => {
      response.writeHead(status, { 'content-type': 'application/json', 'content-length': 1_000 });
      response.write('{"password": "x"', () => response.destroy());
    });
    assertRefused(await run(['get', ID], home.url), 1, said);
  }
});

test('an error has the message of the service, its options and the time to wait, on one line', async (t) => {
  const home = await startRecorder(t);
  const fields = [
    { path: '/expires_in', message: 'must\n\u009b31m\u0007 be\u2028\u202e' },
    { path: '/max_reads\u001b[2J', message: 'must be more' },
  ];
  const wrong =
    'secret get: expires-in must 31m  be ; max-reads [2J must be more (try again after 1 s). See: gatehouse secret get --help';
  for (const [status, error, wait, code, said] of [
    [429, failure('too_many_requests', 'Too many.'), 90, 1, 'Too many. (try again after 90 s)'],
    [503, failure('key_unknown', 'No key.'), 1, 1, 'No key. (try again after 1 s)'],
    [400, failure('invalid_body', 'x', { fields }), 1, 2, wrong],
  ] as const) {
    home.answer(reply(status, error, { 'retry-after': String(wait) }));
    const finished = await run(['get', ID], home.url);
    assert.deepEqual([finished.code, finished.stderr], [code, `gatehouse: ${said}\n`]);
  }
});

test('status: what could control a terminal is removed, and escaped in JSON', async (t) => {
  const home = await startRecorder(t);
  const receipt = { id: 'a\u001b[2J\u009b31m', status: 'b\u202ec\u{e0001}', 'd\u0085': 1 };
  home.answer(reply(200, receipt));
  const json = await run(['status', ID, '--json'], home.url);
  assert.doesNotMatch(json.stdout, /[^\P{Cc}\n]|\p{Cf}/u);
  assert.deepEqual(JSON.parse(json.stdout), receipt);
  const text = await run(['status', ID], home.url);
  assert.doesNotMatch(text.stdout, /[^\P{Cc}\n]|\p{Cf}/u);
  assert.match(text.stdout, /^id +a \[2J 31m\nstatus +b c/);
});

test('a warning for another host without TLS, and none for localhost', async (t) => {
  const home = await startRecorder(t);
  home.answer(reply(200, { share_pages: false, password: 'x', ...STORED }));
  // An address of this host that is not recognized as such.
  const there = `http://0.0.0.0:${home.port}`;
  const warning = `Warning: ${there} does not use TLS. Others on the network can read what is sent.\n`;
  for (const words of [['put'], ['get', ID], ['get', `${there}/s/${ID}`]]) {
    const { code, stderr } = await run(words, there);
    assert.equal(code, 0, stderr);
    assert.deepEqual([stderr.indexOf(warning), stderr.split('Warning').length], [0, 2]);
  }
  for (const [place, url] of [
    [ID, `http://localhost:${home.port}`],
    // The host of the link decides, not GATEHOUSE_URL.
    [`${home.url}/s/${ID}`, there],
    [ID, 'https://0.0.0.0:1'],
    [ID, 'http://[::1]:1'],
  ] as const)
    assert.doesNotMatch((await run(['get', place], url)).stderr, /Warning/);
});
