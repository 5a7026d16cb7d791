/** The routes of each service, from the tables that also route and authenticate. */
import type { Route } from '../src/platform/http/route/route.ts';
import { createRoutes as createIdentityRoutes } from '../src/identity/routes.ts';
import { Env } from '../src/platform/runtime/env.ts';
import { createRoutes as createSecretsRoutes } from '../src/secrets/routes.ts';
import { createRoutes as createWebhookRoutes } from '../src/webhook/routes.ts';
import { readShared } from '../src/platform/process/settings.ts';

type Rows = ReadonlyArray<Route<never>>;

const site = readShared(new Env({}));
const DAY_SECONDS = 86_400;
/** The widest that an operator may set. */
const limits = {
  expires_in: { default: 7 * DAY_SECONDS, max: 366 * DAY_SECONDS },
  max_reads: { default: null, max: 1_000 },
  password: { max_bytes: 2_097_152 - 1_024 },
};

interface Tables {
  /** With the pages that a variable turns on. */
  readonly all: Rows;
  readonly withoutPages: Rows;
  /** And with OpenID Connect, which another variable turns on. */
  readonly withOidc?: Rows;
  /** Served as well, but of no use to a program, and so in no document. */
  readonly unlisted?: Rows;
}

const identity = await createIdentityRoutes(site);
const withOidc = await createIdentityRoutes(site, true);
export const TABLES: Readonly<Record<string, Tables>> = {
  identity: {
    all: identity.filter(({ isUnlisted = false }) => !isUnlisted),
    withoutPages: await createIdentityRoutes(null),
    withOidc: withOidc.filter(({ isUnlisted = false }) => !isUnlisted),
    unlisted: withOidc.filter(({ isUnlisted = false }) => isUnlisted),
  },
  secrets: {
    all: await createSecretsRoutes(limits, site),
    withoutPages: await createSecretsRoutes(limits, null),
  },
  webhook: {
    all: createWebhookRoutes(site),
    withoutPages: createWebhookRoutes(null),
  },
};

const nameOf = ({ method, pattern }: Route<never>): string => `${method} ${pattern}`;

/** @returns a line for each route: method, pattern, and the credentials, one of which suffices */
export function listRoutes(service: string): readonly string[] {
  const { all, withoutPages } = TABLES[service] ?? { all: [], withoutPages: [] };
  const always = new Set(withoutPages.map(nameOf));
  return all.map((row) => {
    const { method, pattern, security } = row;
    const credentials = security.length === 0 ? 'none' : security.join('|');
    const line = `${method.padEnd(6)} ${pattern.padEnd(42)} ${credentials}`;
    return always.has(nameOf(row)) ? line : `${line} (with the pages)`;
  });
}
