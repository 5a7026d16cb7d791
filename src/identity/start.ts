import { randomToken } from '../platform/crypto/token.ts';
import { createDatabase } from '../platform/db/pool.ts';
import { bindRoutes } from '../platform/http/route/route.ts';
import type { ServiceContext } from '../platform/runtime/context.ts';
import { SCHEMA } from './migrations.ts';
import { createRoutes } from './routes.ts';
import { createIdentity, type IdentityService } from './service.ts';
import type { IdentitySettings } from './settings.ts';
import { COMMAND_LINE } from './store/audit.ts';
import { createJobs } from './store/housekeeping.ts';
import { takeNamedLock } from './store/rights.ts';
import { readNotices } from './store/notices.ts';
import { anyFactorExists } from './store/lists.ts';
import { anyUserExists, insertUser } from './store/users.ts';
import { type AlsoWrite, hashOf } from './users.ts';

export async function start(settings: IdentitySettings, context: ServiceContext) {
  const { database: address, admin, ...options } = settings;
  const { portal } = options;
  const database = createDatabase(address, SCHEMA.name, context.log, context.metrics);
  const hasCodes = portal !== null || options.factorSecrets.length > 0;
  const codes = hasCodes ? await import('./factors/codes.ts') : null;
  const oidc = portal?.hasOidc ? await import('./oidc/start.ts') : null;
  const service = createIdentity(options, database, context, codes?.checkCode);
  const provider = oidc?.startOidc(service);
  return {
    routes: bindRoutes(await createRoutes(portal && context.site, oidc !== null), service),
    storage: { database, schema: SCHEMA },
    async beforeReady() {
      if (codes) await codes.reportTotpKeys(service);
      else if (await database.read(anyFactorExists)) context.log.warn(NO_CODES);
      await provider?.prepare();
      const invitation = portal && (await import('./signin/links.ts')).createLink(portal);
      await createFirstAdministrator(admin, service, invitation);
    },
    jobs: [...createJobs(service), ...(provider?.jobs ?? [])],
    observe: (since: string, until: string) => readNotices(database, since, until),
  };
}

const NO_CODES =
  'users with a second factor cannot log in: neither SIGNIN_PAGES nor IDENTITY_SECRET is set, and so their codes cannot be checked';

const CHANGE_SOON =
  'identity: change this password within 24 hours, or it expires; to set another, run: gatehouse user password NAME';

/**
 * Creates a super administrator, if there is no user.
 * @param invitation a link with which the administrator chooses a password
 */
async function createFirstAdministrator(
  { username, email, password }: IdentitySettings['admin'],
  { database, passwords, announce, handOut }: IdentityService,
  invitation: Readonly<{ link: string; insert: AlsoWrite }> | null,
) {
  if (await database.read(anyUserExists)) return;
  const generated = randomToken();
  const administrator = {
    username,
    email,
    first_name: '',
    last_name: '',
    enabled: true,
    verified: true,
    super_admin: true,
    groups: [],
    password_hash: await hashOf(password ?? generated, { passwords }),
    password_generated: password === null,
  };
  // Replicas that start together run this one after the other, and all but the first find a user.
  const credential = await database.transaction(async (sql) => {
    await takeNamedLock(sql, 'first administrator');
    if (await anyUserExists(sql)) return null;
    const { id } = await insertUser(sql, COMMAND_LINE, administrator);
    if (password !== null) return 'the password of ADMIN_PASSWORD';
    // Handed out before the commit: without the password, the administrator would be of no use.
    const shown = `password ${await handOut('admin-password', generated)}`;
    await invitation?.insert(sql, COMMAND_LINE, id);
    const link = invitation && ` or with the link ${await handOut('admin-link', invitation.link)}`;
    return `${shown}${link ?? ''}\n${CHANGE_SOON}`;
  });
  if (credential === null) return;
  announce(`identity: created the first administrator "${username}" with ${credential}`);
}
