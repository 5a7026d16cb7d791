import { once } from 'node:events';
import { connect } from 'node:net';
import { inspectDatabase } from '../db/inspect.ts';
import { describeError, StartupError } from '../runtime/errors.ts';
import {
  type Configuration,
  configure,
  createProcessContext,
  createRunning,
  type Output,
  SERVICE_NAMES,
  type Service,
} from '../serve.ts';
import { type Command, json, OperationFailed } from './command.ts';
import { counted } from './database.ts';
import { printRows } from './terminal.ts';

/** One line of the report. */
type Finding = Readonly<{ state: 'ok' | 'warning' | 'failed'; check: string; detail: string }>;
type Add = (state: Finding['state'], what: string, detail: string) => void;

/** Signed senders may differ by five minutes from this machine's clock, codes of apps by one from the database's. */
const MAX_CLOCK_MS = 30_000;
const OLDEST_SERVER = 150_000; // as server_version_num

export const CHECK: Command = {
  name: 'check',
  positionals: '[SERVICE…]',
  among: SERVICE_NAMES,
  options: { json },
  summary: 'Check settings and databases, and say what serve would start; change nothing',
  async run(given, terminal) {
    const { positionals: names } = given;
    const configuration = await configure(names.length > 0 ? names : SERVICE_NAMES, 'serve');
    const { warnings, metrics } = configuration;
    const findings: Finding[] = warnings.map((detail) => ({
      state: 'warning',
      check: 'settings',
      detail,
    }));
    if (findings.length === 0) findings.push({ state: 'ok', check: 'settings', detail: 'valid' });
    const checkOne = (service: Service, name: string) => check(service, name, configuration);
    findings.push(...[...(await withServices(configuration, process, checkOne)).values()].flat());
    if (metrics)
      findings.push({ state: 'ok', check: 'metrics', detail: await listenerText(metrics) });
    printRows(
      given,
      terminal,
      findings,
      ['STATE', 'CHECK', 'DETAIL'],
      ({ state, check, detail }) => [state, check, detail],
    );
    const failed = findings.filter(({ state }) => state === 'failed').length;
    if (failed > 0) throw new OperationFailed(`${counted(failed, 'check')} failed`);
  },
};

/** Runs work with each configured service, assembled but not served. @returns the results, by service */
export async function withServices<T>(
  configuration: Configuration,
  output: Output,
  work: (service: Service, name: string) => Promise<T>,
): Promise<ReadonlyMap<string, T>> {
  const context = await createProcessContext(configuration, output);
  const results = new Map<string, T>();
  for (const service of configuration.services.map((one) => createRunning(one, context))) {
    results.set(
      service.name,
      await service
        .load()
        .then((loaded) => work(loaded, service.name))
        .finally(service.stop),
    );
  }
  return results;
}

async function check(
  { storage, jobs, checkWork }: Service,
  name: string,
  { services, shared }: Configuration,
) {
  const findings: Finding[] = [];
  const add: Add = (state, what, detail) =>
    void findings.push({ state, check: `${name} ${what}`, detail });
  if (storage) await checkDatabase(storage, shared.MIGRATE, add);
  else add('ok', 'database', 'none is needed');
  const service = services.find((one) => one.name === name);
  const migration = storage && shared.MIGRATE ? 'migration' : '';
  const work = [migration, counted(jobs.length, 'periodic job')];
  if (service)
    add(
      'ok',
      'listener',
      `${await listenerText(service)}; with ${work.filter(Boolean).join(', ')}`,
    );
  try {
    checkWork?.();
    if (checkWork) add('ok', 'delivery', 'the target can be used');
  } catch (error) {
    if (!(error instanceof StartupError)) throw error;
    add('failed', 'delivery', error.message);
  }
  return findings;
}

async function checkDatabase(
  { database, schema }: NonNullable<Service['storage']>,
  mayMigrate: boolean,
  add: Add,
): Promise<void> {
  const found = await inspectDatabase(database, schema).catch((error: unknown) =>
    describeError(error),
  );
  if ('error' in found) return add('failed', 'database', found.error);
  const { server, isPooled, state, clock, missing } = found;
  const transport = server.encrypted ? 'encrypted' : 'not encrypted';
  const text = `PostgreSQL ${server.version}, database ${server.name}, role ${server.role}, ${transport}`;
  if (server.number < OLDEST_SERVER)
    add('failed', 'database', `${text}; PostgreSQL 15 or newer is needed`);
  else if (server.standby)
    add('failed', 'database', `${text}; it is a standby; connect to the primary`);
  else add('ok', 'database', text);
  add('ok', 'pooler', isPooled ? 'one in session mode' : 'none');

  if (missing.length > 0)
    add('failed', 'rights', `the role ${server.role} lacks ${missing.join(', ')}`);
  else if (state)
    add('ok', 'rights', state.exists ? 'all that serve needs' : 'the role will own its new tables');
  if (state) {
    const { applied, pending } = state;
    const newer = applied.length > schema.version ? ', of a newer version' : '';
    const lacks = `${schema.name} lacks ${counted(pending.length, 'step')}: ${pending.join('; ')}`;
    const steps = counted(applied.length, 'step');
    if (pending.length === 0)
      add('ok', 'schema', `${schema.name} is up to date (${steps}${newer})`);
    else if (!mayMigrate) add('failed', 'schema', `${lacks}; MIGRATE=off: run "gatehouse migrate"`);
    else if (server.creates) add('ok', 'schema', `${lacks}; serve applies it at startup`);
    else
      add(
        'failed',
        'schema',
        `${lacks}; the role may not create it: run "gatehouse migrate" as the owner`,
      );
  }
  const off = `${Math.abs(Math.round(clock.ahead))} ms ${clock.ahead < 0 ? 'behind' : 'ahead of'} this machine's clock`;
  const detail = `the server's clock is ${off} (±${Math.ceil(clock.within)} ms)`;
  if (Math.abs(clock.ahead) - clock.within > MAX_CLOCK_MS)
    add('warning', 'clock', `${detail}; synchronize both`);
  else add('ok', 'clock', detail);
}

/** A port in use is not a failure: Gatehouse may be running. */
async function listenerText({
  host,
  port,
}: {
  readonly host: string;
  readonly port: number;
}): Promise<string> {
  const address = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  return `${address}${(await isInUse(host, port)) ? ' (in use now, by a running Gatehouse or another program)' : ''}`;
}

async function isInUse(host: string, port: number): Promise<boolean> {
  const socket = connect({ host, port });
  const signal = AbortSignal.timeout(1_000);
  return once(socket, 'connect', { signal })
    .then(
      () => true,
      () => false,
    )
    .finally(() => socket.destroy());
}
