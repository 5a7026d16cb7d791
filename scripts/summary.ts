/**
 * What `make start` prints once all services are ready: addresses, first values, and one command
 * per service.
 */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import type { FirstValue } from './first-values.ts';

type Environment = Readonly<Record<string, string | undefined>>;

export interface Address {
  host: string;
  port: number;
}

export interface Addresses {
  identity: Address;
  secrets: Address;
  webhook: Address;
}

export function readAddresses(env: Environment): Addresses {
  return {
    identity: address(setting(env, 'IDENTITY_HOST'), portOf(env, 'IDENTITY_PORT') ?? 3000),
    secrets: address(setting(env, 'SECRETS_HOST'), portOf(env, 'SECRETS_PORT') ?? 8080),
    webhook: address(
      setting(env, 'WEBHOOK_HOST') ?? setting(env, 'HOST'),
      portOf(env, 'WEBHOOK_PORT') ?? portOf(env, 'PORT') ?? 8000,
    ),
  };
}

/** An invalid variable counts as unset here. The services report it. */
export function setting(env: Environment, variable: string): string | undefined {
  const file = env[`${variable}_FILE`];
  try {
    return env[variable] || (file ? readFileSync(file, 'utf8').trimEnd() : undefined);
  } catch {
    return undefined;
  }
}

/** An address made of an invalid port would be one more invalid setting. */
function portOf(env: Environment, variable: string): number | undefined {
  const port = /^\d{1,5}$/.exec(setting(env, variable) ?? '')?.[0];
  return port !== undefined && Number(port) <= 65_535 ? Number(port) : undefined;
}

/** A service that listens on every address is reached at 127.0.0.1. */
function address(host: string | undefined, port: number): Address {
  const everywhere = host === undefined || host === '0.0.0.0' || host === '::';
  return { host: everywhere ? '127.0.0.1' : host, port };
}

export function origin({ host, port }: Address): string {
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

export async function isReady(address: Address): Promise<boolean> {
  try {
    const response = await fetch(`${origin(address)}/readyz`, {
      signal: AbortSignal.timeout(5000),
    });
    await response.arrayBuffer();
    return response.status === 200;
  } catch {
    return false;
  }
}

export function isTaken({ host, port }: Address): Promise<boolean> {
  return new Promise((resolve) => {
    if (!(port > 0 && port < 65536)) return resolve(false);
    const socket = connect({ host, port, timeout: 1000 });
    const settle = (taken: boolean) => {
      socket.destroy();
      resolve(taken);
    };
    socket
      .once('connect', () => settle(true))
      .once('error', () => settle(false))
      .once('timeout', () => settle(false));
  });
}

export interface FirstValues {
  serverSecret: FirstValue;
  identitySecret: FirstValue;
  token: FirstValue;
  webhookToken: FirstValue;
  webhookSecret: FirstValue;
}

/** Pages that a variable turns on. */
interface Page {
  readonly service: keyof Addresses;
  readonly name: string;
  readonly address: string;
  readonly remark?: string;
}

/** By default as the identity service has it. */
const signInOrigin = (env: Environment) => setting(env, 'SIGNIN_ORIGIN') ?? 'http://localhost:3000';

/** As `localhost`, the host of the sign-in, whose cookie opens these pages as well. */
const pageOrigin = ({ host, port }: Address) =>
  origin({ host: host === '127.0.0.1' ? 'localhost' : host, port });

/** @param cli how to run a command for this database */
export function pagesOf(env: Environment, addresses: Addresses, cli: string): Page[] {
  const pages: Record<string, Page> = {
    SIGNIN_PAGES: {
      service: 'identity',
      name: 'sign-in pages',
      address: `${signInOrigin(env)}/login`,
    },
    SHARE_PAGES: {
      service: 'secrets',
      name: 'share pages',
      address: `${pageOrigin(addresses.secrets)}/`,
    },
    INBOX_PAGE: {
      service: 'webhook',
      name: 'inbox',
      address: `${pageOrigin(addresses.webhook)}/inbox`,
      remark: setting(env, 'SIGNIN_VERIFY_URL')
        ? ''
        : `; for its token: ${cli} token create --role operator --name me`,
    },
  };
  return Object.entries(pages).flatMap(([variable, page]) =>
    setting(env, variable) === 'on' ? [page] : [],
  );
}

export function summary(
  addresses: Addresses,
  administrator: string,
  /** `link`: with which the administrator chooses a password. */
  values: FirstValues & { password: FirstValue | null; link?: string | null },
  /** How to run a command for this database. */
  cli: string,
  ownDatabase: boolean,
  pages: readonly Page[] = [],
): string {
  const { token, webhookToken } = values;
  const password = values.password ?? { variable: 'ADMIN_PASSWORD', given: 'value' };
  const identity = origin(addresses.identity);
  const secrets = origin(addresses.secrets);
  const webhook = origin(addresses.webhook);
  const login = paste(`{"username":${JSON.stringify(administrator)},"password":"`, password, '"}');
  const json = `-H 'Content-Type: application/json'`;
  const bearer = (value: FirstValue) => `-H ${paste('Authorization: Bearer ', value)}`;
  const secret = `'{"password":"hunter2 is not enough"}'`;
  const event = `'{"event":"page.updated","data":{"page_id":"42"}}'`;
  // A database that was used before already has its first user and token.
  const condition = (what: string) =>
    ownDatabase ? '' : ` (if this database had no ${what} before)`;
  const shown = (service: keyof Addresses) =>
    pages
      .filter((page) => page.service === service)
      .map(({ name, address, remark = '' }) => `\n            ${name} at ${address}${remark}`)
      .join('');
  const signIn = pages.find(({ service }) => service === 'identity');
  const withPassword =
    values.password === null ? 'your password' : `the first password ${show(password)}`;
  const open = signIn
    ? `  Open ${signIn.address} and sign in as ${administrator} with ${withPassword}.\n\n`
    : '';
  const reset = `${cli} user password ${quote(administrator)}`;
  const expiry = `
            it expires 24 hours after the first start unless you change it; to set another:
            ${reset}`;
  const invitation = values.link
    ? `\n            or choose a password of your own at ${values.link}`
    : '';
  const remark = password.given === 'nowhere' ? expiry : condition('user');
  const first =
    values.password === null
      ? `administrator ${administrator}, with the password that was chosen; to set another: ${reset}`
      : `administrator ${administrator}, first password ${show(password)}${remark}${invitation}`;
  const commands = `Commands, in a second terminal. The alias is for those that messages name:

  alias gatehouse=${quote(cli)}
  gatehouse user list

`;
  return `
Gatehouse is ready. Ctrl-C stops it.

${open}  identity  ${identity}
            ${first}${shown('identity')}
  secrets   ${secrets}
            bearer token ${show(token)}${shown('secrets')}
  webhook   ${webhook}/webhook
            first webhook token ${show(webhookToken)}${condition('token')}${shown('webhook')}

One line to try each:

  curl -s ${quote(`${identity}/api/auth/login`)} ${json} -d ${login}
  curl -s ${quote(`${secrets}/api/store/encrypt`)} ${bearer(token)} ${json} -d ${secret}
  curl -s ${quote(`${webhook}/webhook`)} ${bearer(webhookToken)} ${json} -d ${event}

${ownDatabase ? commands : ''}`;
}

function show(value: FirstValue): string {
  if (value.given === 'nowhere') return value.value;
  return value.given === 'value' ? `from ${value.variable}` : `from ${value.variable}_FILE`;
}

/** A quoted word of a shell command. A given value is replaced by a reference to its variable. */
function paste(before: string, value: FirstValue, after = ''): string {
  if (value.given === 'nowhere') return quote(before + value.value + after);
  const reference =
    value.given === 'value' ? `"$${value.variable}"` : `"$(cat "$${value.variable}_FILE")"`;
  return quote(before) + reference + (after && quote(after));
}

function quote(text: string): string {
  return /^[\w:/.@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
