/** WORKERS=n: several processes that serve as one. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfig, SERVICES } from '../src/config.ts';
import { migrateAll } from '../src/serve.ts';
import { createDatabase } from './support/database.ts';
import { keepExpired } from './support/expired.ts';
import { ADMIN_PASSWORD, ask, logIn, variables, WEBHOOK_TOKEN } from './support/gatehouse.ts';
import { addOperator } from './support/inbox.ts';
import { untilSql } from './support/lanes.ts';
import { buildProgram, runProgram, startProgram } from './support/process.ts';
import { reply, startRecorder } from './support/recorder.ts';
import { bounded, until } from './support/until.ts';
import { AT_ONCE, childrenOf, get, requestsOf, say, startWorkers, type Workers } from './support/workers.ts';

const program = buildProgram();
const file = await createDatabase();
const three = { ...variables(file.url), WORKERS: '3' };
// So that the database knows a token before the tests begin.
await migrateAll(readConfig(SERVICES, 'administer', { DATABASE_URL: file.url }), process);
await addOperator(file.sql);
const metricsOf = async (house: Workers) => {
  const answer = await ask('GET', `${house.services.metrics}/metrics`);
  assert.equal(answer.status, 200);
  return answer.text;
};

test('three workers serve three services on one port each; what is said once for all is said once, and each says that it is ready', bounded, async (t) => {
  const { url } = await createDatabase(t);
  const { ADMIN_PASSWORD: _password, WEBHOOK_TOKEN: _token, ...unnamed } = variables(url);
  const house = await startWorkers(t, program, { ...unnamed, AUTH_TOKEN: 'a-short-one', WORKERS: '3' });
  const pids = house.workers();
  assert.equal(pids.length, 3);
  for (const service of SERVICES) {
    const ports = house.log().filter((line) => line.message === 'listening' && line.service === service).map(({ port }) => port);
    assert.equal(ports.length, 3, service);
    assert.equal(new Set(ports).size, 1, service);
    assert.equal(house.log().filter((line) => line.message === 'ready' && line.service === service).length, 3);
    for (const pid of pids) {
      const client = await house.connect(service, pid);
      assert.equal((await say(client, get('/readyz'))).status, 200, `${service} in ${pid}`);
    }
  }
  assert.equal(house.count('AUTH_TOKEN has fewer than 32 characters; make a long random one with: openssl rand -base64 32'), 1);
  assert.equal(house.log().filter(({ level }) => level === 'warn').length, 1);
  const [, password = ''] = /^identity: created the first administrator "admin" with password (\S+)$/m.exec(house.stderr()) ?? [];
  const [, token = ''] = /^webhook: created the first token: (\S+)$/m.exec(house.stderr()) ?? [];
  assert.equal(house.stderr().split('\n').length, 3, house.stderr());
  await logIn(house.services.identity, 'admin', password);
  assert.equal((await ask('POST', `${house.services.webhook}/webhook`, { bearer: token, body: { event: 'tested', data: { page_id: '1' } } })).status, 200);
});

test('what the services say of their databases at every start is said once, too', bounded, async (t) => {
  const house = await startWorkers(t, program, { ...three, WEBHOOK_TOKEN: 'another-token-for-tests-0123456789abcdef' }, ['webhook', 'secrets']);
  assert.equal(house.count('server secret'), 1);
  assert.equal(house.count('WEBHOOK_TOKEN is not used, because there are tokens already and it is not a live one of them'), 1);
});

test('one answer of /metrics adds up what all workers have counted, and takes nothing back when one of them has been killed', bounded, async (t) => {
  const house = await startWorkers(t, program, three);
  const [route, each] = ['GET /readyz', 20];
  const clients = await Promise.all(house.workers().flatMap((pid) => [house.connect('identity', pid), house.connect('secrets', pid)]));
  const ply = () => Promise.all(clients.map(async (client) => {
    for (let request = 0; request < each; request += 1) assert.equal((await say(client, get('/readyz'))).status, 200);
  }));
  await ply();
  const all = clients.length * each;
  const before = await metricsOf(house);
  assert.deepEqual(requestsOf(before, route), { total: all, below: all, observed: all });
  const series = before.split('\n').filter((line) => line !== '' && !line.startsWith('#')).map((line) => line.slice(0, line.lastIndexOf(' ')));
  assert.equal(new Set(series).size, series.length, 'each series once');
  assert.match(before, /^gatehouse_requests_total\{service="identity",route="GET \/readyz",status="200"\} 60$/m);
  const [, resident = ''] = /^process_resident_memory_bytes ([0-9]+)$/m.exec(before) ?? [];
  assert.ok(Number(resident) > 4 * 30e6, 'the memory of four processes');

  const [victim = 0] = house.workers().slice(-1);
  await house.replace(victim);
  const after = requestsOf(await metricsOf(house), route);
  assert.deepEqual(after, { total: all, below: all, observed: all }, 'a counter that falls is taken for one that began anew, and all of it for news');
});

test('a worker that does not answer keeps nobody from the numbers of the others, and its own stand as they were', bounded, async (t) => {
  const house = await startWorkers(t, program, three, ['identity']);
  for (const pid of house.workers()) await say(await house.connect('identity', pid), get('/readyz'));
  assert.equal(requestsOf(await metricsOf(house), 'GET /readyz').total, 3);
  const [pid = 0] = house.workers();
  process.kill(pid, 'SIGSTOP');
  const meanwhile = requestsOf(await metricsOf(house), 'GET /readyz').total;
  process.kill(pid, 'SIGCONT');
  assert.equal(requestsOf(await metricsOf(house), 'GET /readyz').total, 3);
  assert.equal(meanwhile, 3);
});

test('many may ask for the numbers at the same time, and nothing is said about it', bounded, async (t) => {
  const house = await startWorkers(t, program, three, ['identity']);
  const said = house.stderr();
  const texts = await Promise.all(Array.from({ length: 30 }, () => metricsOf(house)));
  for (const text of texts) assert.match(text, /^gatehouse_requests_in_flight\{service="identity"\} 0$/m);
  assert.equal(house.stderr(), said);
});

test('the metrics listener knows /livez as little before its first request as after it', bounded, async (t) => {
  const house = await startWorkers(t, program, three, ['identity']);
  const probe = async () => (await ask('GET', `${house.services.metrics}/livez`)).status;
  const first = await probe();
  await metricsOf(house);
  assert.equal(await probe(), first);
});

test('what is to be done once is done by the first worker, and what each has gathered is written by each', bounded, async (t) => {
  const { url, sql } = await createDatabase(t);
  await migrateAll(readConfig(SERVICES, 'administer', { DATABASE_URL: url }), process);
  const expired = await Promise.all(Array.from({ length: 5 }, () => keepExpired(sql)));
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag)
    select gen_random_uuid(), 'of-a-test', b, b, b from generate_series(1, 2), (select decode('00', 'hex') as b) content`;
  const house = await startWorkers(t, program, { ...variables(url), ...AT_ONCE, WORKERS: '3' });
  const body = JSON.stringify({ username: 'admin', password: ADMIN_PASSWORD });
  for (const pid of house.workers()) {
    const client = await house.connect('identity', pid);
    const login = await say(client, `POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    const session: string = login.json.data.session;
    await sql`update identity.sessions set last_seen_at = now() - interval '2 minutes' where last_seen_at > now() - interval '1 minute'`;
    assert.equal((await say(client, get('/api/test/', session))).status, 200);
  }
  await until(() => house.count('secret expired') >= expired.length);
  await untilSql(async () => (await sql`select from identity.sessions where last_seen_at > now() - interval '1 minute'`).length === 3, 'each worker has noted what it saw');
  assert.equal(house.count('secret expired'), expired.length);
  assert.deepEqual(house.log().filter(({ message }) => message === 'secret expired').map(({ secret_id }) => secret_id).sort(), expired.map(({ id }) => id).sort());
  assert.equal(house.count('background work failed'), 0);
  const text = await metricsOf(house);
  assert.match(text, /^gatehouse_secret_events_total\{event="expired"\} 5$/m);
  assert.match(text, /^gatehouse_secrets_stored\{key_id="of-a-test"\} 2$/m, 'they were counted by one worker');
});

test('the successor of the first worker takes over what is to be done once, and others go on meanwhile', bounded, async (t) => {
  const { url, sql } = await createDatabase(t);
  const house = await startWorkers(t, program, { ...variables(url), ...AT_ONCE, WORKERS: '2' }, ['secrets']);
  const [first = 0, second = 0] = house.workers();
  const other = await house.connect('secrets', second);
  const victims = await house.connect('secrets', first);
  const { id } = await keepExpired(sql);
  await house.replace(first);
  await victims.closed();
  assert.equal((await say(other, get('/readyz'))).status, 200, 'the connection of the other has never been cut');
  const [facts] = house.log().filter(({ message }) => message === 'a worker has ended and is started again');
  assert.deepEqual([facts?.level, facts?.worker, facts?.code, facts?.signal], ['error', 1, null, 'SIGKILL']);
  await until(() => house.log().some(({ message, secret_id }) => message === 'secret expired' && secret_id === id));
  assert.equal(house.workers().length, 2);
  assert.ok(!house.workers().includes(first) && house.workers().includes(second));
  for (const pid of house.workers()) assert.equal((await say(await house.connect('secrets', pid), get('/readyz'))).status, 200);
  // The successor of another has other work.
  await keepExpired(sql);
  const said = house.count('secret expired');
  await house.replace(second);
  assert.equal((await say(await house.connect('secrets', house.workers()[1] ?? 0), get('/readyz'))).status, 200);
  assert.equal(house.count('secret expired'), said);
});

test('with two workers every event is delivered and done, whichever received it', bounded, async (t) => {
  const { url, sql } = await createDatabase(t);
  const target = await startRecorder(t);
  target.answer(reply(200, {}));
  const house = await startWorkers(t, program, { ...variables(url), WORKERS: '2', WEBHOOK_FORWARD_URL: target.url, WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on' }, ['webhook']);
  const send = async (pid: number) => {
    const client = await house.connect('webhook', pid);
    const body = JSON.stringify({ event: 'tested', data: { page_id: '1' } });
    const head = ['POST /webhook HTTP/1.1', 'Host: x', `Authorization: Bearer ${WEBHOOK_TOKEN}`, 'Content-Type: application/json', `Content-Length: ${body.length}`];
    const ids: string[] = [];
    for (let event = 0; event < 40; event += 1) {
      const answer = await say(client, `${head.join('\r\n')}\r\n\r\n${body}`);
      assert.equal(answer.status, 200, answer.body);
      ids.push(answer.json.id);
    }
    return ids;
  };
  const ids = (await Promise.all(house.workers().map(send))).flat();
  assert.equal(new Set(ids).size, 80);
  await untilSql(async () => (await sql`select from webhook.outcomes where status = 'done'`).length === 80, 'all events are done');
  assert.deepEqual(new Set(target.received.map(({ headers }) => headers['webhook-id'])), new Set(ids));
  assert.equal((await sql`select from webhook.work`).length, 0);
});

test('WORKERS is a number from 1 to 64, and anything else is refused by name, once', bounded, async (t) => {
  for (const wrong of ['0', '65', 'abc', '1.5', '-1']) {
    const finished = await runProgram(t, program, ['serve'], { ...three, WORKERS: wrong });
    assert.equal(finished.code, 78, wrong);
    assert.match(finished.stderr, /^gatehouse: WORKERS [^\n]*\n$/);
    assert.equal(finished.stdout, '');
  }
});

test('one worker is no process of its own', bounded, async (t) => {
  for (const one of [{}, { WORKERS: '1' }]) {
    const running = startProgram(t, program, ['serve', 'identity'], { ...variables(file.url), ...one });
    await running.ready('identity');
    assert.deepEqual(childrenOf(running.pid), []);
  }
});

test('the first worker knows that it is the first, also when its numbers are asked for before it has begun', bounded, async (t) => {
  for (let start = 1; start <= 4; start += 1) {
    const house = startProgram(t, program, ['serve', 'secrets'], { ...three, WORKERS: '2', METRICS_PORT: '0', AUTH_TOKEN: 'a-short-one' });
    const metrics = await house.url('metrics');
    let isReady = false;
    const ready = until(() => house.log().some(({ message }) => message === 'every worker is ready'), 'all are ready').then(() => (isReady = true));
    while (!isReady) await ask('GET', `${metrics}/metrics`);
    await ready;
    // Only the first one does what is to be done once, such as this.
    assert.equal(house.log().filter(({ level }) => level === 'warn').length, 1, house.stdout());
    house.signal('SIGTERM');
    await house.ended;
  }
});
