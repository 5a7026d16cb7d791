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
import { type StopSignal, type Supervised, supervise } from '../../../scripts/supervise.ts';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import { untilSql } from '../../support/connections.ts';
import type { Owner } from '../../support/owner.ts';
import { statusOf } from '../faults/system.ts';
import { findProgram, freePort } from '../programs.ts';
import { createOwned, PASSWORD } from '../servers.ts';

/** The programs of the newest PostgreSQL of the system, where Debian keeps them. */
export function findPostgres() {
  const root = '/usr/lib/postgresql';
  const versions = existsSync(root) ? readdirSync(root).map(Number).filter(Boolean) : [];
  return versions
    .sort((one, other) => other - one)
    .map((version) => join(root, String(version), 'bin'))
    .find((bin) => ['postgres', 'pg_rewind'].every((name) => existsSync(join(bin, name))));
}

/** Where programs run that belong to a user without privileges. */
export type Machine = ReturnType<typeof createMachine>;

export function createMachine(t: Owner) {
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
    /** Starts a program, which ends with the test, by this signal. */
    run(name: string, program: string, args: readonly string[], signal: StopSignal = 'TERM') {
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
    /** @returns the path of a new file that the programs may read */
    write(name: string, text: string) {
      const file = join(home, name);
      writeFileSync(file, text, { mode: 0o600 });
      if (user) chownSync(file, user.uid, user.gid);
      return file;
    },
  };
}

export async function startCluster(t: Owner) {
  const machine = createMachine(t);
  const etcd = await startEtcd(machine);
  const nodes = [
    await prepareNode(machine, 'node1', etcd),
    await prepareNode(machine, 'node2', etcd),
  ] as const;
  // The first one makes the cluster, the other one copies it.
  nodes[0].start();
  await untilSql(async () => (await nodes[0].status('/primary')) === 200, 'the first node leads');
  nodes[1].start();
  const haproxy = await startHaproxy(machine, nodes);
  const pgbouncer = await startPgbouncer(machine, haproxy);
  const findLeader = async () => {
    const statuses = await Promise.all(nodes.map((node) => node.status('/primary')));
    return nodes.find((_node, index) => statuses[index] === 200);
  };
  const leader = async () => (await findLeader()) ?? assert.fail('no node leads');
  /** Whether one node leads, and the other is synchronous by its own word and by the leader's. */
  const isSynchronous = async () => {
    const first = await findLeader();
    if (!first || (await otherThan(first).status('/synchronous')) !== 200) return false;
    const find = `select from pg_stat_replication where sync_state = 'sync'`;
    return withConnection(
      first.url('postgres'),
      async (sql) => (await sql.unsafe(find)).length > 0,
    );
  };
  const otherThan = (node: Node) => (node === nodes[0] ? nodes[1] : nodes[0]);
  const untilSynchronous = () => untilSql(isSynchronous, 'a node leads, the other is synchronous');
  await untilSynchronous();
  await createOwned((await leader()).url('postgres'));
  const at = (hosts: string) => `postgres://gatehouse:${PASSWORD}@${hosts}/gatehouse`;
  return {
    /** The node that accepts writes. */
    leader,
    otherThan,
    untilSynchronous,
    /** The database by way of the list of both nodes, HAProxy, or PgBouncer before HAProxy. */
    urls: {
      hosts: at(nodes.map(({ port }) => `127.0.0.1:${port}`).join()),
      haproxy: at(`127.0.0.1:${haproxy}`),
      pgbouncer: at(`127.0.0.1:${pgbouncer}`),
    },
  };
}

/** @returns its port for clients */
async function startEtcd({ run, home }: Machine) {
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
  await untilSql(async () => (await statusOf(`${clientUrl}/health`)) === 200, 'etcd answers');
  return client;
}

type Node = Awaited<ReturnType<typeof prepareNode>>;

async function prepareNode({ run, write, home }: Machine, name: string, etcd: number) {
  const port = await freePort();
  const rest = await freePort();
  const data = join(home, name);
  const settings = patroniSettings(name, port, rest, etcd, data);
  const file = write(`${name}.yml`, JSON.stringify(settings));
  let patroni: Supervised | undefined;
  const killPostgres = () => {
    const [id] = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n');
    process.kill(Number(id), 'SIGKILL');
  };
  return {
    name,
    port,
    /** The port of Patroni's own API. */
    rest,
    /** Of a database, as the superuser. */
    url: (database: string) => `postgres://postgres:${PASSWORD}@127.0.0.1:${port}/${database}`,
    /** The status of Patroni's answer at this path: 0 if there is none. */
    status: (path: string) => statusOf(`http://127.0.0.1:${rest}${path}`),
    /** `kill -9` of PostgreSQL. Patroni finds out. */
    killPostgres,
    /** `kill -9` of Patroni and PostgreSQL, as if the machine was gone. */
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

/** JSON is YAML. */
function patroniSettings(name: string, port: number, rest: number, etcd: number, data: string) {
  const address = (number: number) => ({
    listen: `127.0.0.1:${number}`,
    connect_address: `127.0.0.1:${number}`,
  });
  const account = (username: string) => ({ username, password: PASSWORD });
  const access = (what: string) => `host ${what} 127.0.0.1/32 scram-sha-256`;
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
      pgpass: `${data}.pgpass`,
      parameters: { unix_socket_directories: '' },
      pg_hba: [access('all all'), access('replication replicator')],
      authentication: { superuser: account('postgres'), replication: account('replicator') },
    },
  };
}

/** @returns its port */
async function startHaproxy({ run, write }: Machine, nodes: readonly Node[]) {
  const port = await freePort();
  const settings = [
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
  ];
  run('haproxy', 'haproxy', ['-db', '-f', write('haproxy.cfg', settings.join('\n'))]);
  return port;
}

/** @returns the settings of a PgBouncer in session mode, unless `more` says otherwise */
export const pgbouncerSettings = (
  port: number,
  server: number | string,
  users: string,
  ...more: readonly string[]
) =>
  [
    '[databases]',
    `* = host=127.0.0.1 port=${server}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = scram-sha-256',
    `auth_file = ${users}`,
    'default_pool_size = 60',
    'max_client_conn = 300',
    ...more,
    '',
  ].join('\n');

/** @returns its port */
async function startPgbouncer({ run, write }: Machine, haproxy: number) {
  const port = await freePort();
  const users = write('users', `"gatehouse" "${PASSWORD}"\n`);
  // By default, it waits for 15 s after a server has refused a connection.
  const more = ['pool_mode = session', 'server_login_retry = 0.2'];
  const settings = pgbouncerSettings(port, haproxy, users, ...more);
  run('pgbouncer', 'pgbouncer', [write('pgbouncer.ini', settings)]);
  return port;
}
