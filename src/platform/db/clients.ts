import { setTimeout as sleep } from 'node:timers/promises';
import type { Sql } from 'postgres';
import { codeOf, describeError, Unavailable } from '../runtime/errors.ts';
import type { Log } from '../runtime/log.ts';
import type { Metrics } from '../runtime/metrics.ts';
import { type Client, connect, prepare } from './client.ts';
import type { PoolName } from './connection-settings.ts';
import { dial, type Dialed } from './dial.ts';
import { endsConnection, isStale } from './errors.ts';
import type { DatabaseAddress, Host } from './url.ts';

/** Before all hosts are tried again: a standby that rejects connections is busy. */
const SEARCH_PAUSE_MS = 100;

export type Clients = ReturnType<typeof createClients>;

/** The clients of a database, all connected to one server. */
export function createClients(address: DatabaseAddress, name: string, log: Log, metrics: Metrics) {
  const clients = new Set<Client>();
  const open = createConnector(clients, address, name, log, metrics, () => isClosed);
  let isClosed = false;

  function find(pool: string, isFit: (client: Client) => boolean) {
    for (const client of clients) {
      if (client.pool === pool && !client.isRetired && isFit(client)) return client;
    }
    return null;
  }

  /**
   * Lets no further call use the connections that are open now. What happened to this one happened
   * to all: the server or the network has failed, or a table has changed.
   */
  function retireAll(because: Client) {
    if (because.isRetired) return;
    for (const client of clients) {
      client.isRetired = true;
      if (!client.isBusy) void client.close(0);
    }
  }

  return {
    /** Runs work that has a client for itself. */
    async run<T>(pool: PoolName, work: (sql: Sql) => Promise<T>) {
      // Work that continues after the shutdown must not open a connection, because nothing would
      // close it.
      if (isClosed) throw new Unavailable('the database connections are closed');
      const idle = find(pool, ({ isBusy }) => !isBusy);
      const client = idle ?? (await open(pool));
      client.isBusy = true;
      if (isClosed) void client.close(0);
      try {
        return await work(client.sql);
      } catch (error) {
        if (endsConnection(error) || isStale(error)) retireAll(client);
        throw error;
      } finally {
        client.isBusy = false;
        if (client.isRetired) void client.close(0);
      }
    },
    isOpen: (pool: string) => find(pool, ({ server }) => server !== null) !== null,
    /** Statements under way may finish within two seconds. No client is opened afterwards. */
    async close() {
      isClosed = true;
      await Promise.all([...clients].map((client) => client.close(2)));
    },
  };
}

/** @returns a function that opens a client on the host that was usable last, or on the next one */
function createConnector(
  clients: Set<Client>,
  address: DatabaseAddress,
  name: string,
  log: Log,
  metrics: Metrics,
  isClosed: () => boolean,
) {
  const { hosts } = address;
  /** Of the host that was usable last. */
  let hostIndex = 0;
  let latest = address;
  metrics.gauge(
    'gatehouse_database_certificate_end_seconds',
    'When sslrootcert or sslcert ends, in seconds since 1970.',
    () => latest.certificates?.endSeconds ?? NaN,
    { service: name },
  );
  const dialOne = (among: readonly Host[]) => dial(among, latest.connectSeconds, isClosed);

  async function openOn(dialed: Dialed, pool: PoolName, own: DatabaseAddress) {
    const { host } = dialed;
    const client = connect(own, dialed, pool, name, log, (ended) => clients.delete(ended));
    clients.add(client);
    try {
      const openOther = async () => connect(own, await dialOne([host]), pool, name, log, () => {});
      client.server = await prepare(client, own, openOther);
    } catch (error) {
      clients.delete(client);
      void client.close(0);
      throw error;
    }
    closeOthers(clients, client);
    hostIndex = hosts.indexOf(host);
    return client;
  }

  async function openOnAny(pool: PoolName) {
    let untried = [...hosts.slice(hostIndex), ...hosts.slice(0, hostIndex)];
    latest = reload(latest, log);
    let password = prepareForScram(latest.password);
    for (;;) {
      const dialed = await dialOne(untried);
      try {
        return await openOn(dialed, pool, { ...latest, password });
      } catch (error) {
        const isOther = password !== latest.password && WRONG_PASSWORD.has(codeOf(error));
        if (isOther) password = latest.password;
        else untried = untried.filter((host) => host !== dialed.host);
        if (untried.length === 0) throw error;
      }
    }
  }

  return (pool: PoolName) =>
    openOnAny(pool).catch(async (error: unknown) => {
      if (hosts.length > 1) await sleep(SEARCH_PAUSE_MS);
      throw error;
    });
}

/**
 * After a failover, or if the address of the host has changed, a connection to the former server
 * would read outdated data, and write what is lost.
 */
function closeOthers(clients: ReadonlySet<Client>, { host, server }: Client) {
  for (const other of clients) {
    const isOtherServer = other.server !== null && other.server !== server;
    if (other.host !== host || isOtherServer) {
      other.isRetired = true;
      void other.close(0);
    }
  }
}

const WRONG_PASSWORD = new Set(['28P01', '28000']);

/**
 * The password as SASLprep makes it (RFC 4013): for SCRAM, servers store it so, unless it holds
 * what SASLprep prohibits. They check it as it is for MD5, LDAP and others, and the driver does not
 * say what they ask for. So it is tried as it is, too.
 */
const prepareForScram = (password: string) =>
  password
    .replace(/[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000]/g, ' ')
    .replace(/[\u00ad\u034f\u1806\u180b-\u180d\u200c\u200d\u2060\ufe00-\ufe0f\ufeff]/g, '')
    .normalize('NFKC');

/**
 * The password and the certificates may have been replaced. Those that were read before stay in use
 * if they cannot be read.
 */
function reload(latest: DatabaseAddress, log: Log) {
  try {
    return {
      ...latest,
      ...latest.reload(),
      hosts: latest.hosts,
    };
  } catch (error) {
    log.error(
      'the database URL cannot be read again: the earlier one is used',
      describeError(error),
    );
    return latest;
  }
}
