/** What the commands send, to which host, and how they handle replies that are not Gatehouse's. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { assertRefused, runCommand } from '../../support/commands.ts';
import { type Recorder, reply, startRecorder } from '../../support/recorder.ts';

const ID = '7584cfab-6d77-44db-8886-e100c5e58a6a';
const KEY = 'OldUnEuCpgjgjUQetmDcow6j32ZmeaD014L851u2WgI';
const AUTH_TOKEN = 'marked-token-0123456789abcdefghijklmnopqrs';

const run = (words: readonly string[], url: string, input = `${KEY}\n`) =>
  runCommand(['secret', ...words], { GATEHOUSE_URL: url, AUTH_TOKEN }, input);

/** Every command that uses GATEHOUSE_URL. */
const COMMANDS = [['put'], ['get', ID], ['status', ID], ['delete', ID]] as const;

const UNEXPECTED =
  /^gatehouse: unexpected reply: is GATEHOUSE_URL, or the link, a Gatehouse secrets service\?\n$/;

const failure = (code: string, message: string, fields?: object) => ({
  data: null,
  error: { code, message, ...(fields ? { fields } : {}) },
  _meta: { request_id: 'test' },
});
const fresh = (t: TestContext): Promise<Recorder> => startRecorder(t);

test('a link: sent to its own host, without the token', async (t) => {
  const home = await fresh(t);
  const foreign = await fresh(t);
  foreign.answer(reply(200, { password: 'theirs' }));
  const { code, stdout } = await run(['get', `${foreign.url}/s/${ID}`], home.url);
  assert.deepEqual([code, stdout], [0, 'theirs\n']);
  assert.equal(home.received.length, 0);
  const [request, ...more] = foreign.received;
  assert.ok(request && more.length === 0);
  assert.deepEqual(
    [request.method, request.target, JSON.parse(request.body)],
    ['POST', `/s/${ID}`, { secret: KEY }],
  );
  assert.equal(request.headers.authorization, undefined);
  assert.ok(!JSON.stringify(request).includes(AUTH_TOKEN));
});

test('the token is in a header; key, passphrase and text are in the body, never in the URL', async (t) => {
  const home = await fresh(t);
  home.answer((response, { target }) => {
    const answers: Readonly<Record<string, unknown>> = {
      '/api/store/options': { share_pages: false },
      '/api/store/encrypt': { id: ID, secret: KEY, expires_at: null },
    };
    reply(200, answers[target] ?? { id: ID, status: 'stored', password: 'x' })(response);
  });
  const put = ['put', '--no-end-to-end', '--passphrase', '--expires-in', '1h', '--max-reads', '2'];
  assert.equal((await run(put, home.url, 'marked-words\nmarked-text')).code, 0);
  assert.equal((await run(['get', ID], home.url)).code, 0);
  assert.equal((await run(['status', ID], home.url)).code, 0);
  assert.equal((await run(['delete', ID], home.url)).code, 0);
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
    assert.equal(headers.authorization, `Bearer ${AUTH_TOKEN}`);
    const { authorization: _, ...others } = headers;
    for (const mark of ['marked-', KEY])
      assert.ok(!JSON.stringify([others, target]).includes(mark));
  }
});

test('put: no reply of the service turns end-to-end encryption off', async (t) => {
  const home = await fresh(t);
  for (const share_pages of [false, true, undefined, null]) {
    home.answer(reply(200, { share_pages, id: ID, secret: KEY, expires_at: null }));
    const put = await run(['put', '--passphrase'], home.url, 'marked-words\nmarked-text');
    assert.equal(put.code, 0, put.stderr);
  }
  assert.equal(home.received.length, 8);
  assert.doesNotMatch(JSON.stringify(home.received), /marked-(words|text)/);
});

test('put: requests the options before it sends the secret', async (t) => {
  const home = await fresh(t);
  home.answer(reply(503, failure('overloaded', 'The service is busy.')));
  assertRefused(
    await run(['put'], home.url, 'marked-text'),
    1,
    /^gatehouse: The service is busy\.\n$/,
  );
  assert.deepEqual(
    home.received.map(({ target }) => target),
    ['/api/store/options'],
  );
});

test('redirects are not followed', async (t) => {
  const home = await fresh(t);
  const foreign = await fresh(t);
  foreign.answer(
    reply(200, { password: 'theirs', share_pages: false, id: ID, secret: KEY, status: 'stored' }),
  );
  // For 307 and 308 a client would resend the body.
  for (const [status, words] of [
    [302, ['get', ID]],
    [307, ['get', ID]],
    [307, ['get', `${home.url}/s/${ID}`]],
    [308, ['put']],
    [301, ['status', ID]],
  ] as const) {
    home.answer((response, { target }) =>
      reply(status, '', { location: `${foreign.url}${target}` })(response),
    );
    assertRefused(await run(words, home.url), 1, UNEXPECTED);
  }
  assert.deepEqual(foreign.received, []);
});

const REPLIES: Readonly<Record<string, readonly [status: number, body: unknown]>> = {
  'a page': [200, '<!doctype html><title>Welcome</title>'],
  'a 404 page': [404, '<h1>Not Found</h1>'],
  'a proxy error page': [502, '<h1>Bad Gateway</h1>'],
  'an empty body': [200, ''],
  'half a JSON document': [200, '{"password": "x'],
  'a list': [200, [1, 2]],
  'a number': [200, '7'],
  null: [200, 'null'],
  'an error of another schema': [400, { error: 'bad request' }],
  'an error without a code': [400, { error: { message: 'marked' } }],
  'a failure without an error': [500, { message: 'marked' }],
};

test('an unexpected reply is exit 1', async (t) => {
  const home = await fresh(t);
  for (const [name, [status, body]] of Object.entries(REPLIES)) {
    home.answer(reply(status, body));
    // All commands parse replies with the same function.
    const all = status === 404 ? COMMANDS : [['get', `${home.url}/s/${ID}`]];
    for (const words of all) {
      const refused = await run(words, home.url);
      assert.equal(refused.code, 1, name);
      assertRefused(refused, 1, UNEXPECTED);
    }
  }
});

test('a reply of something else is exit 1, and nothing is printed', async (t) => {
  const home = await fresh(t);
  for (const body of [{ hello: 'world' }, { password: 5 }, {}]) {
    home.answer(reply(200, body));
    for (const words of [['get', ID], ['put']])
      assertRefused(await run(words, home.url), 1, UNEXPECTED);
  }
});

test('no reply: closed connection, closed port, unknown host', async (t) => {
  const home = await fresh(t);
  home.answer((response) => response.destroy());
  const origin = home.url.replaceAll('.', '\\.');
  const said = new RegExp(
    `^gatehouse: ${origin} did not answer \\([A-Z_]+\\); check GATEHOUSE_URL or the link\n$`,
  );
  for (const words of [['put'], ['get', ID], ['get', `${home.url}/s/${ID}`]]) {
    assertRefused(await run(words, home.url), 1, said);
  }
  assertRefused(
    await run(['get', ID], 'http://127.0.0.1:1'),
    1,
    /http:\/\/127\.0\.0\.1:1 did not answer/,
  );
  assertRefused(
    await run(['get', `https://127.0.0.1:${home.port}/s/${ID}`], home.url),
    1,
    /https:\/\/127\.0\.0\.1:[0-9]+ did not answer/,
  );
});

test('a reply that was cut off is exit 1, and says that a read may have been used up', async (t) => {
  const home = await fresh(t);
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

test('an error message is one line without control characters', async (t) => {
  const home = await fresh(t);
  home.answer(
    reply(
      400,
      failure('invalid_body', 'x', [
        { path: '/a\u001b[2J', message: 'must\n\u009b31m\u0007 be\u2028\u202e' },
      ]),
      { 'retry-after': '1' },
    ),
  );
  assertRefused(
    await run(['get', ID], home.url),
    2,
    /^gatehouse: secret get: a \[2J must 31m  be  \(try again after 1 s\)\. See: [^\n]*\n$/,
  );
});

test('status --json: what could control a terminal is escaped', async (t) => {
  const home = await fresh(t);
  const receipt = { id: 'a\u001b[2J\u009b31m\u007f', status: 'b\u202ec\u{e0001}', 'd\u0085': 1 };
  home.answer(reply(200, receipt));
  const { code, stdout } = await run(['status', ID, '--json'], home.url);
  assert.equal(code, 0);
  assert.doesNotMatch(stdout, /[^\P{Cc}\n]|\p{Cf}/u);
  assert.deepEqual(JSON.parse(stdout), receipt);
});

test('status: control characters of a reply are removed', async (t) => {
  const home = await fresh(t);
  home.answer(reply(200, { id: 'a\u001b[2J\u009b31m', status: 'b\u001b[2J', 'c\u001b': 1 }));
  const { code, stdout } = await run(['status', ID], home.url);
  assert.deepEqual([code, stdout], [0, 'id      a [2J 31m\nstatus  b [2J\nc       1\n']);
});

test('429 and 503: the message of the service and the time to wait', async (t) => {
  const home = await fresh(t);
  home.answer(
    reply(
      429,
      failure('too_many_requests', 'Too many attempts have failed. Wait, then try again.'),
      { 'retry-after': '90' },
    ),
  );
  for (const place of [ID, `${home.url}/s/${ID}`]) {
    assertRefused(
      await run(['get', place], home.url),
      1,
      /^gatehouse: Too many attempts have failed\. Wait, then try again\. \(try again after 90 s\)\n$/,
    );
  }
  home.answer(reply(503, failure('key_unknown', 'The key is missing.'), { 'retry-after': '1' }));
  assertRefused(
    await run(['get', ID], home.url),
    1,
    /^gatehouse: The key is missing\. \(try again after 1 s\)\n$/,
  );
});

test('field errors name the option, with exit code 2', async (t) => {
  const home = await fresh(t);
  const fields = [
    { path: '/expires_in', message: 'must be less' },
    { path: '/max_reads', message: 'must be more' },
  ];
  const options = reply(200, { share_pages: false });
  const failed = reply(400, failure('invalid_body', 'Correct it.', fields));
  home.answer((response, { target }) => (target.endsWith('options') ? options : failed)(response));
  assertRefused(
    await run(['put'], home.url),
    2,
    /^gatehouse: secret put: expires-in must be less; max-reads must be more\. See: gatehouse secret put --help\n$/,
  );
});

const warning = (origin: string) =>
  `Warning: ${origin} does not use TLS. Others on the network can read what is sent.\n`;

test('a warning for another host without TLS, and none for localhost', async (t) => {
  const home = await fresh(t);
  home.answer((response, { target }) => {
    reply(
      200,
      target.endsWith('encrypt')
        ? { id: ID, secret: KEY, expires_at: null }
        : { share_pages: false, password: 'x' },
    )(response);
  });
  // An address of this host that is not recognized as such.
  const there = `http://0.0.0.0:${home.port}`;
  for (const words of [['put'], ['get', ID], ['get', `${there}/s/${ID}`]]) {
    const { code, stderr } = await run(words, there);
    assert.equal(code, 0, stderr);
    assert.ok(stderr.startsWith(warning(there)), stderr);
    assert.equal(stderr.split('Warning').length, 2);
  }
  assert.equal((await run(['get', ID], `http://localhost:${home.port}`)).stderr, '');
  // The host of the link decides, not GATEHOUSE_URL.
  assert.equal((await run(['get', `${home.url}/s/${ID}`], there)).stderr, '');
  assert.doesNotMatch((await run(['get', ID], 'https://0.0.0.0:1')).stderr, /Warning/);
  assert.doesNotMatch((await run(['get', ID], 'http://[::1]:1')).stderr, /Warning/);
});
