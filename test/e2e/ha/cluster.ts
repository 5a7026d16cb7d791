/**
 * A cluster as operators run it: etcd, two nodes of Patroni with synchronous replication, HAProxy
 * and PgBouncer.
 */
import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { unprivilegedUser } from '../../../scripts/binaries.ts';
import { withConnection } from '../../../scripts/postgres.ts';
import { findProgram, freePort } from '../programs.ts';
import { type StopSignal, type Supervised, supervise } from '../../../scripts/supervise.ts';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';

interface Owner {
  after(fn: () => Promise<void>): void;
}

/** Of all, and of no use elsewhere: everything listens on 127.0.0.1 for the time of the test. */
const PASSWORD = 'rehearsal';
const LIMIT_MS = 90_000;

export interface Node {
  readonly name: string;
  readonly port: number;
  /** The status of Patroni's answer at this path: 0 if there is none. */
  status(path: string): Promise<number>;
  /** `kill -9` of PostgreSQL. Patroni finds out. */
  killPostgres(): void;
  /** `kill -9` of Patroni and PostgreSQL, as if the machine was gone. */
  killAll(): Promise<void>;
  start(): void;
}

export interface Cluster {
  readonly nodes: readonly Node[];
  /** The node that accepts writes. */
  leader(): Promise<Node>;
  /**
   * Resolves when one node accepts writes and the other one has everything that it acknowledges.
   */
  untilSynchronous(): Promise<void>;
  /**
   * @returns the URL of a new database, by way of the list of both nodes, HAProxy, or PgBouncer
   * before HAProxy
   */
  createDatabase(
    name: string,
  ): Promise<Readonly<Record<'hosts' | 'haproxy' | 'pgbouncer', string>>>;
  /** The URL of a database on one node. */
  urlOn(node: Node, database: string): string;
}

/** The programs of the newest PostgreSQL of the system, where Debian keeps them. */
export function findPostgres(): string | undefined {
  const root = '/usr/lib/postgresql';
  const versions = existsSync(root) ? readdirSync(root).map(Number).filter(Boolean) : [];
  return versions
    .sort((one, other) => other - one)
    .map((version) => join(root, String(version), 'bin'))
    .find(
      (directory) =>
        existsSync(join(directory, 'postgres')) && existsSync(join(directory, 'pg_rewind')),
    );
}

export async function until(
  what: string,
  condition: () => Promise<boolean>,
  limitMs = LIMIT_MS,
): Promise<void> {
  for (const deadline = Date.now() + limitMs; !(await condition()); await sleep(50)) {
    assert.ok(Date.now() < deadline, `not within ${limitMs} ms: ${what}`);
  }
}

export async function startCluster(t: Owner): Promise<Cluster> {
  const machine = createMachine(t);
  const etcd = await startEtcd(machine);
  const nodes = [
    await prepareNode(machine, 'node1', etcd),
    await prepareNode(machine, 'node2', etcd),
  ];
  for (const node of nodes) {
    node.start();
    if (node !== nodes[0]) continue;
    // The first one makes the cluster, the other one copies it.
    await until('the first node leads', async () => (await node.status('/primary')) === 200);
  }
  const haproxy = await startHaproxy(machine, nodes);
  const pgbouncer = await startPgbouncer(machine, haproxy);
  const untilSynchronous = () =>
    until('one node leads and the other one is synchronous', () => isSynchronous(nodes));
  await untilSynchronous();
  const leader = async () => (await findLeader(nodes)) ?? assert.fail('no node leads');
  await withConnection(urlOn('postgres', await leader(), 'postgres'), (sql) =>
    sql.unsafe(`create role gatehouse login password '${PASSWORD}'`),
  );
  return {
    nodes,
    untilSynchronous,
    leader,
    urlOn: (node, database) => urlOn('postgres', node, database),
    async createDatabase(name) {
      await withConnection(
        urlOn('postgres', await leader(), 'postgres'),
        (sql) => sql`create database ${sql(name)} owner gatehouse`,
      );
      const at = (hosts: string) => `postgres://gatehouse:${PASSWORD}@${hosts}/${name}`;
      return {
        hosts: at(nodes.map(({ port }) => `127.0.0.1:${port}`).join()),
        haproxy: at(`127.0.0.1:${haproxy}`),
        pgbouncer: at(`127.0.0.1:${pgbouncer}`),
      };
    },
  };
}

/** Where the programs of the cluster run: they belong to a user without privileges. */
export interface Machine {
  readonly home: string;
  /** Starts a program, which ends with the test, by this signal. */
  run(name: string, program: string, args: readonly string[], signal?: StopSignal): Supervised;
  /** @returns the path of a new file that the programs may read */
  write(name: string, text: string): string;
}

export function createMachine(t: Owner): Machine {
  const directory = makeTemporary(tmpdir(), 'gatehouse-ha');
  const user = unprivilegedUser();
  const home = join(directory, 'home');
  mkdirSync(home);
  if (user) {
    chmodSync(directory, 0o711);
    chownSync(home, user.uid, user.gid);
  }
  const stops: Array<() => Promise<unknown>> = [];
  t.after(async () => {
    // The last ones first: a node ends in order only while it reaches etcd.
    for (const stop of stops.reverse()) await stop();
    await sleep(500);
    removeTemporary(directory);
  });
  return {
    home,
    run(name, program, args, signal = 'TERM') {
      const file = findProgram(program) ?? assert.fail(`${program} is not installed`);
      const output = openSync(join(home, `${name}.log`), 'a');
      const path = `${process.env.PATH ?? ''}:/usr/sbin`;
      const env = { HOME: home, PATH: path, LC_ALL: 'C.UTF-8' };
      const options = { cwd: home, env, output, ...(user ? { user } : {}) };
      const started = supervise(signal, file, args, options);
      closeSync(output);
      stops.push(async () => {
        started.tell(signal);
        await started.ended.catch(() => {});
      });
      return started;
    },
    write(name, text) {
      const file = join(home, name);
      writeFileSync(file, text, { mode: 0o600 });
      if (user) chownSync(file, user.uid, user.gid);
      return file;
    },
  };
}

/** @returns its port for clients */
async function startEtcd({ run, home }: Machine): Promise<number> {
  const client = await freePort();
  const clientUrl = `http://127.0.0.1:${client}`;
  const peerUrl = `http://127.0.0.1:${await freePort()}`;
  const options = {
    'data-dir': join(home, 'etcd'),
    'listen-client-urls': clientUrl,
    'advertise-client-urls': clientUrl,
    'listen-peer-urls': peerUrl,
    'initial-advertise-peer-urls': peerUrl,
    'initial-cluster': `default=${peerUrl}`,
  };
  const words = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
  run('etcd', 'etcd', words);
  await until('etcd answers', async () => (await statusOf(`${clientUrl}/health`)) === 200);
  return client;
}

interface PatroniNode extends Node {
  /** The port of Patroni's own API. */
  readonly rest: number;
}

async function prepareNode(
  { run, write, home }: Machine,
  name: string,
  etcd: number,
): Promise<PatroniNode> {
  const port = await freePort();
  const rest = await freePort();
  const data = join(home, name);
  const settings = patroniSettings(name, port, rest, etcd, data, home);
  const file = write(`${name}.yml`, JSON.stringify(settings));
  let patroni: Supervised | undefined;
  const killPostgres = () => {
    const [id] = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n');
    process.kill(Number(id), 'SIGKILL');
  };
  return {
    name,
    port,
    rest,
    killPostgres,
    status: (path) => statusOf(`http://127.0.0.1:${rest}${path}`),
    async killAll() {
      patroni?.tell('KILL');
      await patroni?.ended;
      killPostgres();
    },
    start() {
      patroni = run(name, 'patroni', [file]);
    },
  };
}

/** @returns its port */
async function startHaproxy(
  { run, write }: Machine,
  nodes: readonly PatroniNode[],
): Promise<number> {
  const port = await freePort();
  run('haproxy', 'haproxy', ['-db', '-f', write('haproxy.cfg', haproxySettings(port, nodes))]);
  return port;
}

/** @returns its port */
async function startPgbouncer({ run, write }: Machine, haproxy: number): Promise<number> {
  const port = await freePort();
  const users = write('users', `"gatehouse" "${PASSWORD}"\n`);
  const settings = [
    '[databases]',
    `* = host=127.0.0.1 port=${haproxy}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = scram-sha-256',
    `auth_file = ${users}`,
    'pool_mode = session',
    'default_pool_size = 60',
    'max_client_conn = 300',
    // By default, it waits for 15 s after a server has refused a connection.
    'server_login_retry = 0.2',
    '',
  ];
  run('pgbouncer', 'pgbouncer', [write('pgbouncer.ini', settings.join('\n'))]);
  return port;
}

async function findLeader(nodes: readonly Node[]): Promise<Node | undefined> {
  const statuses = await Promise.all(nodes.map((node) => node.status('/primary')));
  return nodes.find((_node, index) => statuses[index] === 200);
}

/** Whether one node leads, and all others are synchronous by their own word and by the leader's. */
async function isSynchronous(nodes: readonly Node[]): Promise<boolean> {
  const leader = await findLeader(nodes);
  if (!leader) return false;
  const others = nodes.filter((node) => node !== leader);
  const statuses = await Promise.all(others.map((node) => node.status('/synchronous')));
  if (statuses.some((status) => status !== 200)) return false;
  const [row] = await withConnection(
    urlOn('postgres', leader, 'postgres'),
    (sql) => sql`select from pg_stat_replication where sync_state = 'sync'`,
  );
  return row !== undefined;
}

const urlOn = (role: string, { port }: Node, database: string) =>
  `postgres://${role}:${PASSWORD}@127.0.0.1:${port}/${database}`;

async function statusOf(url: string): Promise<number> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    await response.text();
    return response.status;
  } catch {
    return 0;
  }
}

/** JSON is YAML. */
function patroniSettings(
  name: string,
  port: number,
  rest: number,
  etcd: number,
  data: string,
  home: string,
) {
  const address = (number: number) => ({
    listen: `127.0.0.1:${number}`,
    connect_address: `127.0.0.1:${number}`,
  });
  const account = (username: string) => ({ username, password: PASSWORD });
  return {
    scope: 'gatehouse',
    name,
    restapi: address(rest),
    etcd3: { hosts: `127.0.0.1:${etcd}` },
    bootstrap: {
      dcs: {
        // The shortest that Patroni allows. A dead machine is replaced after `ttl`.
        ttl: 20,
        loop_wait: 1,
        retry_timeout: 3,
        synchronous_mode: true,
        // PostgreSQL that has died is not started again as the leader if there is another node.
        primary_start_timeout: 0,
        postgresql: {
          use_pg_rewind: true,
          use_slots: true,
          parameters: { max_connections: 300, wal_keep_size: '256MB' },
        },
      },
      initdb: [{ encoding: 'UTF8' }, 'data-checksums'],
    },
    postgresql: {
      ...address(port),
      data_dir: data,
      bin_dir: findPostgres(),
      pgpass: join(home, `${name}.pgpass`),
      parameters: { unix_socket_directories: '' },
      pg_hba: [
        'host all all 127.0.0.1/32 scram-sha-256',
        'host replication replicator 127.0.0.1/32 scram-sha-256',
      ],
      authentication: { superuser: account('postgres'), replication: account('replicator') },
    },
  };
}

function haproxySettings(port: number, nodes: readonly PatroniNode[]): string {
  return [
    // A refused connection fails at once: by default, it is tried three more times, a second apart.
    'defaults',
    '  mode tcp',
    '  retries 0',
    '  timeout connect 2s',
    '  timeout client 30m',
    '  timeout server 30m',
    '  timeout check 2s',
    'listen primary',
    `  bind 127.0.0.1:${port}`,
    '  option httpchk HEAD /primary',
    '  http-check expect status 200',
    // Without the last words, connections to a former primary would stay open.
    '  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions',
    ...nodes.map((node) => `  server ${node.name} 127.0.0.1:${node.port} check port ${node.rest}`),
    '',
  ].join('\n');
}
