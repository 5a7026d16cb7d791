import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { inspectDatabase, type SchemaState } from './store/diagnose.ts';
import { type DatabaseSchema, distributedTables } from '../platform/db/schema.ts';
import { describeError, StartupError } from '../platform/runtime/errors.ts';
import { configure, SERVICE_NAMES } from '../serve.ts';
import { type Configuration, ConfigurationError } from '../platform/process/settings.ts';
import {
  createProcessContext,
  createServiceRunner,
  type Output,
} from '../platform/process/runner.ts';
import type { ConfiguredService, Service } from '../platform/process/service.ts';
import { type Command, type Invocation, json, OperationFailed } from './command.ts';
import { counted } from './database.ts';
import { printRows } from './terminal.ts';

/** One line of the report. */
const finding = (state: 'ok' | 'warning' | 'failed') => (check: string, detail: string) => ({
  state,
  check,
  detail,
});
const ok = finding('ok');
const warning = finding('warning');
const failed = finding('failed');

/**
 * Signed senders may differ from this machine's clock by five minutes, codes of apps from the
 * database's by 30 seconds.
 */
const MAX_CLOCK_DIFFERENCE_MS = 30_000;
const OLDEST_SERVER = 150_000; // as server_version_num

export const CHECK: Command = {
  name: 'check',
  positionals: '[SERVICE…]',
  acceptedPositionals: SERVICE_NAMES,
  options: { json },
  summary: 'Check settings and databases, and say what serve would start; change nothing',
  async run(call) {
    const configuration = await configureServices(call);
    const { warnings, metrics, shared } = configuration;
    const findings = warnings.map((detail) => warning('settings', detail));
    if (findings.length === 0) findings.push(ok('settings', 'valid'));
    await withServices(configuration, call, async (service, configured) => {
      findings.push(...(await checkService(service, configured, shared.MIGRATE)));
    });
    if (metrics) findings.push(ok('metrics', await listenerText(metrics)));
    printRows(call, findings, {
      STATE: 'state',
      CHECK: 'check',
      DETAIL: 'detail',
    });
    const count = findings.filter(({ state }) => state === 'failed').length;
    if (count > 0) throw new OperationFailed(`${counted(count, 'check')} failed`);
  },
};

/** @throws ConfigurationError */
async function configureServices({ positionals, environment }: Invocation) {
  const names = positionals.length > 0 ? positionals : servedBy(readCommandLine());
  try {
    return await configure(names, 'serve', environment);
  } catch (error) {
    const isOfAll = names.length === 0 && error instanceof ConfigurationError;
    if (!isOfAll || !/ must be set/.test(error.message)) throw error;
    const hint = 'All services were checked. To check one, name it, as in "check webhook".';
    throw new ConfigurationError([...error.problems, hint]);
  }
}

/**
 * In a container, the environment has what the service of process 1 needs, and no more.
 * @returns the services that a process serves by its command line; none for all
 */
export function servedBy(commandLine: string) {
  const words = commandLine.split('\0');
  const at = words.indexOf('serve');
  const isGatehouse = /(^|\/)(cli\.js|gatehouse)$/.test(words[at - 1] ?? '');
  return isGatehouse ? words.slice(at + 1).filter((word) => SERVICE_NAMES.includes(word)) : [];
}

function readCommandLine() {
  try {
    return readFileSync('/proc/1/cmdline', 'utf8');
  } catch {
    return ''; // not on Linux
  }
}

/**
 * Runs work with each configured service, assembled but not served.
 * @returns the results, by service
 */
export async function withServices<T>(
  configuration: Configuration,
  output: Output,
  work: (service: Service, configured: ConfiguredService) => Promise<T>,
) {
  const context = createProcessContext(configuration.shared, output);
  const results = new Map<string, T>();
  for (const configured of configuration.services) {
    const { service, stop } = await createServiceRunner(configured, context);
    try {
      results.set(configured.name, await work(service, configured));
    } finally {
      await stop();
    }
  }
  return results;
}

async function checkService(
  { storage, checkWork, report }: Service,
  { name, host, port }: ConfiguredService,
  mayMigrate: boolean,
) {
  const findings = storage
    ? await checkDatabase(storage, mayMigrate, report)
    : [ok('database', 'none is needed')];
  findings.push(ok('listener', await listenerText({ host, port })));
  if (checkWork) findings.push(checkDelivery(checkWork));
  return findings.map((one) => ({ ...one, check: `${name} ${one.check}` }));
}

function checkDelivery(checkWork: () => void) {
  try {
    checkWork();
    return ok('delivery', 'the target can be used');
  } catch (error) {
    if (error instanceof StartupError) return failed('delivery', error.message);
    throw error;
  }
}

async function checkDatabase(
  { database, schema }: NonNullable<Service['storage']>,
  mayMigrate: boolean,
  report: Service['report'],
) {
  try {
    const found = await inspectDatabase(database, schema);
    const tables = await distributedTables(database, schema);
    const { server, isPooled, state, clock } = found;
    const reported = state?.pending.length === 0 ? await report?.() : [];
    return [
      checkServer(server),
      ok('pooler', isPooled ? 'one in session mode' : 'none'),
      ...checkRights(found),
      ...(state ? [checkSchema(schema, state, mayMigrate, server.creates)] : []),
      ...tables.map((table) => checkTable(table, schema)),
      ...(reported ?? []).map((text) => ok('rights', text)),
      checkClock(clock),
    ];
  } catch (error) {
    return [failed('database', describeError(error).error)];
  }
}

type Inspected = Awaited<ReturnType<typeof inspectDatabase>>;

function checkServer(server: Inspected['server']) {
  const transport = server.encrypted ? 'encrypted' : 'not encrypted';
  const text = `PostgreSQL ${server.version}, database ${server.name}, role ${server.role}, ${transport}`;
  if (server.number < OLDEST_SERVER)
    return failed('database', `${text}; PostgreSQL 15 or newer is needed`);
  if (server.standby) return failed('database', `${text}; it is a standby; connect to the primary`);
  return ok('database', text);
}

function checkRights({ server, state, missing }: Inspected) {
  if (missing.length > 0)
    return [failed('rights', `the role ${server.role} lacks ${missing.join(', ')}`)];
  if (!state) return [];
  return [ok('rights', state.exists ? 'all that serve needs' : 'the role will own its new tables')];
}

function checkSchema(
  { name, steps }: DatabaseSchema,
  { applied, pending }: SchemaState,
  mayMigrate: boolean,
  mayCreate: boolean,
) {
  if (pending.length === 0) {
    const newer = applied.length > steps.length ? ', of a newer version' : '';
    return ok('schema', `${name} is up to date (${counted(applied.length, 'step')}${newer})`);
  }
  const lacks = `${name} lacks ${counted(pending.length, 'step')}: ${pending.join('; ')}`;
  if (!mayMigrate) return failed('schema', `${lacks}; MIGRATE=off: run "gatehouse migrate"`);
  if (mayCreate) return ok('schema', `${lacks}; serve applies it at startup`);
  const advice = 'the role may not create it: run "gatehouse migrate" as the owner';
  return failed('schema', `${lacks}; ${advice}`);
}

function checkTable(table: string, { distributable }: DatabaseSchema) {
  const text = `distributed by Citus: ${table}`;
  if (table === distributable) return ok('table', `${text}; all others are on the coordinator`);
  return failed('table', `${text}; its statements need one node`);
}

function checkClock({ aheadMs, uncertaintyMs }: Inspected['clock']) {
  const off = `${Math.abs(Math.round(aheadMs))} ms ${aheadMs < 0 ? 'behind' : 'ahead of'}`;
  const detail = `the server's clock is ${off} this machine's clock (±${Math.ceil(uncertaintyMs)} ms)`;
  if (Math.abs(aheadMs) - uncertaintyMs <= MAX_CLOCK_DIFFERENCE_MS) return ok('clock', detail);
  return warning('clock', `${detail}; synchronize both`);
}

/** A port in use is not a failure: Gatehouse may be running. */
async function listenerText({ host, port }: { host: string; port: number }) {
  const address = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  if (!(await isInUse(host, port))) return address;
  return `${address} (in use now, by a running Gatehouse or another program)`;
}

async function isInUse(host: string, port: number) {
  const socket = connect({ host, port });
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(1_000) });
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
