/**
 * Two groups of senders behind a proxy, with 10,000 events each. Meanwhile a sender moves from one
 * to the other, as docs/groups.md says. No event may be lost or doubled.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode } from '../../../scripts/setup-error.ts';
import { createDatabase } from '../../support/database.ts';
import { makeDirectory } from '../../support/directories.ts';
import { ask, variables } from '../../support/gatehouse.ts';
import { root, startProgram } from '../../support/process.ts';
import { deployed, type ProxyName, startReloadable } from '../nginx/setup.ts';
import { freePort } from '../programs.ts';
import { reply, startRecorder } from '../../support/recorder.ts';
import { openWebhook } from '../../support/senders.ts';
import { createToken } from '../../support/tokens.ts';

/** Of each group, from the senders that are in it at the end. */
const EVENTS = Number(process.env.EVENTS || 10_000);
const CLIENTS = 4; // of each sender
const REPEATED = 0.02;
type GroupName = 'a' | 'b';

type Ports = Readonly<Record<GroupName, number>>;
/** The group of each sender. The events of one that is moving are answered 503. */
type Routes = Readonly<Record<string, GroupName | 'moving'>>;
type Proxy = Awaited<ReturnType<typeof startProxy>>;

/** The lines of the map in the documented configuration, and what a line of it says. */
const CONFIGURATIONS = {
  nginx: {
    file: 'nginx/groups.conf',
    map: /( *\/from\/\w+\/webhook group_[ab];\n)+/,
    lineOf: (name: string, group: GroupName | 'moving') =>
      `/from/${name}/webhook ${group === 'moving' ? group : `group_${group}`};\n`,
  },
  caddy: {
    file: 'caddy/groups.caddyfile',
    map: /(\t*\/from\/\w+\/webhook 127[.\d:]+\n)+/,
    lineOf: (name: string, group: GroupName | 'moving', ports: Ports) =>
      `/from/${name}/webhook ${group === 'moving' ? group : `127.0.0.1:${ports[group]}`}\n`,
  },
} as const;

async function startProxy(t: TestContext, name: ProxyName, ports: Ports, first: Routes) {
  const { file, map, lineOf } = CONFIGURATIONS[name];
  const text = deployed(file, { 8000: ports.a, 8010: ports.b });
  assert.match(text, map);
  const routed = (routes: Routes) => {
    const lines = Object.entries(routes).map(([sender, group]) => lineOf(sender, group, ports));
    return text.replace(map, lines.join(''));
  };
  const { port, reload } = await startReloadable(name, routed(first), undefined, t);
  return { port, route: (routes: Routes) => reload(routed(routes)) };
}

type Group = Awaited<ReturnType<typeof startGroup>>;
async function startGroup(t: TestContext, name: GroupName, target: string) {
  const database = await createDatabase(t);
  const port = await freePort();
  const environment = {
    ...variables(database.url),
    WEBHOOK_TOKEN: `token-of-group-${name}-0123456789abcdefghijkl`,
    WEBHOOK_PORT: String(port),
    WEBHOOK_FORWARD_URL: target,
    WEBHOOK_FORWARD_ALLOW_PRIVATE: 'on',
    WEBHOOK_RATE: '1000000',
    TRUSTED_PROXIES: '127.0.0.1',
    LOG_LEVEL: 'info',
  };
  await startProgram(t, root, ['serve', 'webhook'], environment).ready('webhook');
  return { port, database, environment };
}

type Sender = Awaited<ReturnType<typeof createSender>>;
/** @param count of its events */
async function createSender(t: TestContext, group: Group, name: string, count: number) {
  const webhook = openWebhook(t, group.database.url);
  const created = await createToken(webhook, { name, role: 'sender', source: 'generic' }, null);
  return {
    ...{ name, count, ...created },
    /** Event ids by delivery id. */
    acknowledged: new Map<string, string>(),
    /** The connections that were answered 503. */
    held: new Set<Agent>(),
  };
}

const bodyOf = (delivery: string) =>
  JSON.stringify({ event: 'counted', data: { page_id: '1', delivery } });

/** @returns the id of the event, or null if the sender must send it again */
async function send(port: number, { name, token, held }: Sender, agent: Agent, delivery: string) {
  const headers = { host: 'hooks.example.org', 'webhook-id': delivery };
  const sent = { bearer: token, headers, body: bodyOf(delivery), agent };
  try {
    const url = `http://127.0.0.1:${port}/from/${name}/webhook`;
    const { status, headers: received, json, text } = await ask('POST', url, sent);
    if (status === 503) {
      assert.ok(received.has('retry-after'), '503 without Retry-After');
      held.add(agent);
      return null;
    }
    assert.equal(status, 200, `${delivery}, ${held.size} held: ${text}`);
    return String(json.id);
  } catch (error) {
    // The proxy has closed an idle connection when it read its configuration again.
    if (errorCode(error) === 'ECONNRESET') return null;
    throw error;
  }
}

/** Sends all events of a sender, each until it is acknowledged, and some of them again. */
async function run(port: number, sender: Sender): Promise<void> {
  const { name, count, acknowledged } = sender;
  let next = 0;
  const deliver = async (agent: Agent, delivery: string) => {
    let id = await send(port, sender, agent, delivery);
    for (; id === null; id = await send(port, sender, agent, delivery)) await sleep(50);
    const first = acknowledged.get(delivery) ?? id;
    assert.equal(id, first, `${delivery} was acknowledged under two ids`);
    acknowledged.set(delivery, id);
  };
  const client = async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    while (next < count) {
      const number = next;
      next += 1;
      await deliver(agent, `${name}-${number}`);
      const isRepeated = number % (1 / REPEATED) === 0;
      // Among them events from before the move.
      if (isRepeated) await deliver(agent, `${name}-${Math.floor(number / 2)}`);
    }
    agent.destroy();
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

const waits = async ({ database: { sql } }: Group, token: string) => {
  const rows = await sql`
    select from webhook.work where token_id = ${token} limit 1`;
  return rows.length > 0;
};

/** @returns the exit status of a file of deploy/groups, and what it has written */
async function runFile(
  name: string,
  words: readonly string[],
  environment: Readonly<Record<string, string>> = {},
) {
  const env = { PATH: process.env.PATH ?? '', ...environment };
  const child = spawn('sh', [join(root, 'deploy/groups', name), ...words], { env });
  const [output, errors, [status]] = await Promise.all([
    readText(child.stdout),
    readText(child.stderr),
    once(child, 'close'),
  ]);
  return { status, output, errors };
}

/** The steps of docs/groups.md. */
async function moveSender(proxy: Proxy, sender: Sender, from: Group, to: Group): Promise<number> {
  proxy.route({ alpha: 'a', beta: 'b', moved: 'moving' });
  const begun = performance.now();
  // All its clients are answered 503: nothing of it is on its way to the group.
  while (sender.held.size < CLIENTS) await sleep(50);
  while (await waits(from, sender.id)) await sleep(50);
  const words = [sender.id, from.database.url, to.database.url];
  const { status, output, errors } = await runFile('move-sender', words);
  assert.deepEqual([status, errors], [0, ''], output);
  proxy.route({ alpha: 'a', beta: 'b', moved: 'b' });
  return performance.now() - begun;
}

/** Each acknowledged event is stored once, in the group of its sender, and was delivered once. */
async function checkLedger(
  group: Group,
  senders: readonly Sender[],
  { received }: Awaited<ReturnType<typeof startRecorder>>,
): Promise<void> {
  const stored = await group.database.sql`
    select id, delivery_id, status from webhook.events left join webhook.outcomes on event_id = id`;
  const acknowledged = new Map(senders.flatMap((sender) => [...sender.acknowledged]));
  assert.equal(acknowledged.size, EVENTS);
  const ids = new Map(stored.map(({ delivery_id, id }) => [delivery_id, id]));
  assert.equal(stored.length, EVENTS);
  assert.deepEqual([...ids].sort(), [...acknowledged].sort());
  assert.ok(stored.every(({ status }) => status === 'done'));
  const bodies = new Map<unknown, string[]>();
  for (const { headers, body } of received) {
    const id = headers['webhook-id'];
    bodies.set(id, [...(bodies.get(id) ?? []), body]);
  }
  for (const [delivery, id] of acknowledged)
    assert.deepEqual(bodies.get(id), [bodyOf(delivery)], `deliveries of ${delivery}`);
}

async function checkBadInput(proxy: Proxy, a: Group, b: Group, sender: Sender): Promise<void> {
  const agent = new Agent();
  for (const [name, refusal] of [
    ['beta', /401/],
    ['nobody', /404/],
  ] as const)
    await assert.rejects(send(proxy.port, { ...sender, name }, agent, 'misdirected'), refusal);
  for (const { sql } of [a.database, b.database])
    assert.equal((await sql`select from webhook.events`).length, 0);
  const from = a.database.url;
  for (const [words, message] of [
    [[], /^Usage: /],
    [[sender.id, from, from], /both addresses lead to the same database/],
    [[sender.id, b.database.url, from], /the first group has no token with the id/],
  ] as const) {
    const { status, errors } = await runFile('move-sender', words);
    assert.ok(status !== 0);
    assert.match(errors, message);
  }
}

/** The loop over all groups. */
async function checkCommands(t: TestContext, groups: Readonly<Record<GroupName, Group>>) {
  const folder = makeDirectory(t, 'groups');
  for (const [name, { environment }] of Object.entries(groups)) {
    const lines = Object.entries(environment).map(([key, value]) => `${key}='${value}'\n`);
    writeFileSync(join(folder, `${name}.env`), lines.join(''));
  }
  const command = { GROUPS_DIR: folder, GATEHOUSE: `${process.execPath} ${root}/dist/cli.js` };
  const listed = await runFile('each-group', ['token', 'list'], command);
  assert.deepEqual([listed.status, listed.errors], [0, '']);
  const [, ofA = '', ofB = ''] = listed.output.split(/^== .\n/m);
  assert.match(ofA, /alpha/);
  assert.doesNotMatch(ofA, /beta|moved/);
  assert.match(ofB, /beta[^]*moved|moved[^]*beta/);
  const missing = await runFile('each-group', ['token', 'list'], { GROUPS_DIR: '/nowhere' });
  assert.equal(missing.status, 2);
  assert.match(missing.errors, /set GROUPS_DIR/);
}

for (const name of ['nginx', 'caddy'] as const) {
  test(`two groups behind ${name}, and a sender that moves: the ledger adds up`, async (t) => {
    const target = await startRecorder(t);
    target.answer(reply(200, {}));
    const a = await startGroup(t, 'a', target.url);
    const b = await startGroup(t, 'b', target.url);
    const routes = { alpha: 'a', beta: 'b', moved: 'a' } as const;
    const proxy = await startProxy(t, name, { a: a.port, b: b.port }, routes);
    const alpha = await createSender(t, a, 'alpha', EVENTS);
    const beta = await createSender(t, b, 'beta', EVENTS / 2);
    const moved = await createSender(t, a, 'moved', EVENTS / 2);
    await checkBadInput(proxy, a, b, moved);

    const running = Promise.all([alpha, beta, moved].map((sender) => run(proxy.port, sender)));
    running.catch(() => {});
    const half = async () => {
      while (moved.acknowledged.size < moved.count / 2) await sleep(20);
    };
    await Promise.race([half(), running]);
    const before = moved.acknowledged.size;
    const heldMs = await moveSender(proxy, moved, a, b);
    await running;
    for (const group of [a, b]) {
      const { sql } = group.database;
      while ((await sql`select from webhook.work limit 1`).length > 0) await sleep(100);
    }
    await checkLedger(a, [alpha], target);
    await checkLedger(b, [beta, moved], target);
    await checkCommands(t, { a, b });
    assert.ok(before < moved.count, 'the sender was still sending when it moved');
    assert.ok(moved.held.size > 0, 'no event was held back');
    assert.equal(alpha.held.size, 0, 'another sender was held back');
    t.diagnostic(
      `${2 * EVENTS} events stored and delivered once; ${before} moved with their sender, ` +
        `which was held back for ${(heldMs / 1000).toFixed(1)} s`,
    );
  });
}
