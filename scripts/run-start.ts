/** `make start` and `gatehouse start`: the three services with everything they need. */
import { once } from 'node:events';
import { mkdirSync, rmSync, watch } from 'node:fs';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  administratorLink,
  administratorPassword,
  firstValue,
  isSet,
  keep,
} from './first-values.ts';
import { connect, databaseUrl, startPostgres, withConnection } from './postgres.ts';
import type { PostgresServer } from './postgres.ts';
import type { Sql } from 'postgres';
import { isReady, isTaken, origin, pagesOf, readAddresses, setting, summary } from './summary.ts';
import type { Address, Addresses, FirstValues } from './summary.ts';
import { supervise } from './supervise.ts';
import type { Supervised } from './supervise.ts';

export interface Place {
  /** Holds the directory .data. */
  readonly root: string;
  /** The arguments with which Node runs the program. */
  readonly program: readonly string[];
  /** How a person runs it in the root. */
  readonly shown: string;
  /** Whose changes start the services again. */
  readonly watched?: string;
}

/** Listeners are for this machine only, unless a variable says otherwise. */
const HOSTS = { IDENTITY_HOST: [], SECRETS_HOST: [], WEBHOOK_HOST: ['HOST'] } as const;
/** `serve` has no pages unless they are turned on. Here they are what a new user looks for. */
const PAGES = ['SIGNIN_PAGES', 'SHARE_PAGES', 'INBOX_PAGE'] as const;

/** The process that a signal stops. */
let services: Supervised | undefined;
let lastSignal = -Infinity;
const stopping = new AbortController();
const stopped = once(stopping.signal, 'abort').then(() => 'stopped' as const);

/** The first signal asks for an orderly shutdown, a second one for an immediate one. */
function onSignal(): void {
  // One Ctrl-C may arrive twice: from the terminal, and from the program that started this one.
  if (performance.now() - lastSignal < 200) return;
  lastSignal = performance.now();
  // Without services there is nothing to wait for: the pipes close, and what has been started ends
  // by itself.
  if (stopping.signal.aborted && services === undefined) process.exit(130);
  stopping.abort();
  services?.tell('TERM');
}

/** @returns the exit status */
export async function start(place: Place): Promise<number> {
  const state = join(place.root, '.data');
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal);
  const database = needsDatabase(state) ? await startDatabase(state) : undefined;
  try {
    return stopping.signal.aborted ? 0 : await run(place, state, database);
  } finally {
    if (database) rmSync(join(state, 'database-url'), { force: true });
    await database?.stop();
  }
}

async function startDatabase(state: string): Promise<PostgresServer | undefined> {
  try {
    return await startPostgres({ directory: state, durable: true });
  } catch (error) {
    // Ctrl-C can hit a program that is just being started. That is a cancelled start, not an error.
    if (stopping.signal.aborted) return undefined;
    throw error;
  }
}

function needsDatabase(state: string): boolean {
  const own = ['IDENTITY_DATABASE_URL', 'SECRETS_DATABASE_URL', 'WEBHOOK_DATABASE_URL'];
  // A shell that has run a command here may still name our own file in its environment.
  const file = process.env.DATABASE_URL_FILE ?? '';
  if (resolve(file) === join(state, 'database-url')) delete process.env.DATABASE_URL_FILE;
  return (
    !isSet(process.env, 'DATABASE_URL') && !own.every((variable) => isSet(process.env, variable))
  );
}

async function run(
  place: Place,
  state: string,
  database: PostgresServer | undefined,
): Promise<number> {
  const values: FirstValues = {
    serverSecret: firstValue(process.env, state, 'SERVER_SECRET'),
    identitySecret: firstValue(process.env, state, 'IDENTITY_SECRET'),
    token: firstValue(process.env, state, 'AUTH_TOKEN'),
    webhookToken: firstValue(process.env, state, 'WEBHOOK_TOKEN'),
    webhookSecret: firstValue(process.env, state, 'WEBHOOK_SECRET'),
  };
  // No load balancer waits for it.
  const env: NodeJS.ProcessEnv = { SHUTDOWN_DELAY: '0', ...process.env };
  for (const value of Object.values(values)) {
    if (value.given !== 'nowhere') continue;
    Object.assign(env, { [value.variable]: undefined, [`${value.variable}_FILE`]: value.file });
  }
  for (const [variable, others] of Object.entries(HOSTS)) {
    if (![variable, ...others].some((one) => isSet(process.env, one)))
      Object.assign(env, { [variable]: '127.0.0.1' });
  }
  allowLocalTargets(env);
  for (const variable of PAGES) {
    if (!isSet(process.env, variable)) Object.assign(env, { [variable]: 'on' });
  }
  const addresses = readAddresses(process.env);
  // Not 127.0.0.1: without TLS, browsers keep the cookies of the sign-in for localhost only.
  if (!isSet(process.env, 'SIGNIN_ORIGIN'))
    env.SIGNIN_ORIGIN = `http://localhost:${addresses.identity.port}`;
  if (['SIGNIN_PAGES', 'SHARE_PAGES', 'INBOX_PAGE'].every((page) => setting(env, page) === 'on'))
    joinPages(env, addresses);
  // Identity generates the first password itself, because only it knows whether the database has
  // users.
  const directory = setting(process.env, 'FIRST_CREDENTIALS_DIR') ?? state;
  if (directory === state) mkdirSync(state, { recursive: true, mode: 0o700 });
  if (!isSet(process.env, 'FIRST_CREDENTIALS_DIR')) env.FIRST_CREDENTIALS_DIR = state;
  if (database !== undefined) {
    env.DATABASE_URL = await createDatabase(database);
    // For commands in a second terminal. The port changes with every start.
    keep(join(state, 'database-url'), env.DATABASE_URL);
    keep(join(state, 'signin-pages'), setting(env, 'SIGNIN_PAGES') ?? '');
    keep(join(state, 'signin-origin'), setting(env, 'SIGNIN_ORIGIN') ?? '');
    keep(join(state, 'webhook-forward-allow-private'), setting(env, ALLOW_PRIVATE) ?? '');
  }

  // The replies of another program on one of the ports must not count as ours. The services report
  // the port.
  const taken = (await Promise.all(Object.values(addresses).map(isTaken))).some(Boolean);
  if (!taken) void announce(addresses, values, directory, place.shown, env, database);
  return serve(place, env, database);
}

const ALLOW_PRIVATE = 'WEBHOOK_FORWARD_ALLOW_PRIVATE';

/** Programs of this machine are the first targets. Only this machine can set one by default. */
function allowLocalTargets(env: NodeJS.ProcessEnv): void {
  const host = setting(env, 'WEBHOOK_HOST') ?? setting(env, 'HOST') ?? '';
  const isLocal = /^(127\.\d+\.\d+\.\d+|::1|localhost)$/.test(host);
  if (isLocal && !isSet(process.env, ALLOW_PRIVATE)) Object.assign(env, { [ALLOW_PRIVATE]: 'on' });
}

/** One sign-in opens all pages, and each links to the others. What is set stays as it is. */
function joinPages(env: NodeJS.ProcessEnv, addresses: Addresses): void {
  const signIn = setting(env, 'SIGNIN_ORIGIN');
  // Cookies belong to a host, whatever the port.
  const share = `http://localhost:${addresses.secrets.port}`;
  const inbox = `http://localhost:${addresses.webhook.port}`;
  const links = [
    `Account=${signIn}/account`,
    `Share=${share}/`,
    `Inbox=${inbox}/inbox`,
    `Sign out=${signIn}/logout`,
  ];
  const joined = {
    SIGNIN_VERIFY_URL: `${origin(addresses.identity)}/api/auth/verify?redirect=401`,
    RETURN_ORIGINS: `${share},${inbox}`,
    // A group, so that an administrator can let others in without a restart.
    INBOX_USERS: `${setting(env, 'ADMIN_USERNAME') ?? 'admin'},group:inbox`,
    SITE_LINKS: links.join(','),
  };
  for (const [variable, value] of Object.entries(joined)) {
    if (!isSet(process.env, variable)) Object.assign(env, { [variable]: value });
  }
}

async function createDatabase(server: PostgresServer): Promise<string> {
  const sql = connect(server.url);
  const existing = await sql`select from pg_database where datname = 'gatehouse'`;
  if (existing.length === 0) await sql`create database gatehouse`;
  await sql.end();
  return databaseUrl(server.url, 'gatehouse');
}

async function announce(
  addresses: Addresses,
  values: FirstValues,
  directory: string,
  cli: string,
  env: NodeJS.ProcessEnv,
  database: PostgresServer | undefined,
): Promise<void> {
  const becomeReady = async (address: Address) => {
    while (!(await isReady(address))) await sleep(200);
  };
  await Promise.all(Object.values(addresses).map(becomeReady));
  const administrator = setting(process.env, 'ADMIN_USERNAME') ?? 'admin';
  const pages = pagesOf(env, addresses, cli);
  const isChanged = database !== undefined && (await hasOwnPassword(database, administrator));
  const password = isChanged ? null : administratorPassword(process.env, directory);
  const ownDatabase = database !== undefined;
  // It has ended with the first password.
  const link = password?.given === 'nowhere' ? administratorLink(directory) : null;
  const first = { ...values, password, link };
  const text = summary(addresses, administrator, first, cli, ownDatabase, pages);
  if (!stopping.signal.aborted) process.stdout.write(text);
}

/** Whether the first password has been replaced, or has expired. */
async function hasOwnPassword(server: PostgresServer, administrator: string): Promise<boolean> {
  const findUser = (sql: Sql) => sql`
    select from identity.users
    where username = ${administrator} and not
      (password_generated and password_set_at + interval '24 hours' > now())`;
  try {
    const found = await withConnection(databaseUrl(server.url, 'gatehouse'), findUser);
    return found.length > 0;
  } catch {
    return false; // the services report trouble with the database
  }
}

/**
 * Runs the services until they end, a signal ends them, or PostgreSQL ends.
 * @returns the exit status
 */
async function serve(
  place: Place,
  env: NodeJS.ProcessEnv,
  database: PostgresServer | undefined,
): Promise<number> {
  const never = new Promise<never>(() => undefined);
  const lost = database?.ended.then(() => 'lost' as const) ?? never;
  for (;;) {
    const changed = place.watched === undefined ? never : nextChange(place.watched);
    const current = startServices(place, env);
    let end: number | 'lost' | 'changed' | 'stopped' = await Promise.race([
      current.ended,
      lost,
      changed,
    ]);
    if (place.watched !== undefined && typeof end === 'number' && !stopping.signal.aborted) {
      process.stderr.write('The services have ended. They start again after the next change.\n');
      end = await Promise.race([stopped, lost, changed]);
    }
    const isStopping = stopping.signal.aborted;
    if (end === 'lost' && !isStopping) {
      process.stderr.write(`PostgreSQL has ended. The end of its log:\n${database?.logTail()}\n`);
    }
    current.tell('TERM');
    await current.ended;
    if (isStopping || stopping.signal.aborted) return 0;
    if (end !== 'changed') return typeof end === 'number' ? end : 1;
  }
}

function startServices({ program, root }: Place, env: NodeJS.ProcessEnv): Supervised {
  services = supervise('TERM', process.execPath, [...program, 'serve'], { cwd: root, env });
  // The signal may have come before there were services to forward it to.
  if (stopping.signal.aborted) services.tell('TERM');
  return services;
}

async function nextChange(directory: string): Promise<'changed'> {
  const watcher = watch(directory, { recursive: true });
  await once(watcher, 'change');
  watcher.close();
  // An editor, or a change of branch, writes more than one file.
  await sleep(100);
  return 'changed';
}
