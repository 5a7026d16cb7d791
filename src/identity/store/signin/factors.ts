import type { SealedSecret } from '../../../platform/crypto/service-secret.ts';
import { sha256 } from '../../../platform/crypto/token.ts';
import { arrayLiteral, type Database, type Fragment, type Sql } from '../../../platform/db/sql.ts';
import { type Actor, audited, insertAudit } from '../audit.ts';
import { changing } from '../rights.ts';
import { firstRow, hasChanged } from '../rows.ts';
import { endSessions } from '../session-ends.ts';

export type Passkey = Readonly<{
  id: Buffer;
  user_id: string;
  name: string;
  spki: Buffer;
  is_backup_eligible: boolean;
  signs_in_alone: boolean;
  created_at: Date;
  last_used_at: Date | null;
}>;

/** Seconds since 1970, by the clock that all replicas share. */
export async function readClock(database: Database) {
  const [row] = await database.read(
    (sql) => sql<[{ now: number }]>`select extract(epoch from now())::float8 as now`,
  );
  return row.now;
}

/** The secret of an app. It is sealed for the user: in another user's row, it does not open. */
export const findTotp = (database: Database, userId: string) =>
  firstRow(
    database.read(
      (sql) => sql<SealedSecret[]>`
      select *, user_id as id
      from identity.totp
      where user_id = ${userId}`,
    ),
  );

export const countTotpByKey = (database: Database) =>
  database.read(
    (sql) => sql<Array<{ key_id: string; apps: number }>>`
    select key_id, count(*)::int4 as apps
    from identity.totp
    group by key_id
    order by key_id`,
  );

/**
 * Accepts each step once, and none before it (RFC 6238, 5.2; ASVS 6.5.1).
 * @param sealed perhaps under another key
 */
export const consumeTotpStep = (
  database: Database,
  step: number,
  given: SealedSecret,
  { key_id, client_key, commitment, blob }: SealedSecret,
) =>
  hasChanged(
    database.write(
      (sql) => sql`
      update identity.totp
      set last_step = ${step}, key_id = ${key_id}, client_key = ${client_key},
        commitment = ${commitment}, blob = ${blob}
      where user_id = ${given.id}
        and last_step < ${step}
        and commitment = ${given.commitment}`,
    ),
  );

/** @returns whether this was one of the user's codes; it is used up now */
export const consumeRecoveryCode = (
  database: Database,
  actor: Actor,
  userId: string,
  code: Buffer,
) =>
  hasChanged(
    database.write((sql) =>
      audited(
        sql,
        { event: 'recovery.used', actor },
        sql`
        delete from identity.recovery_codes
        where digest = ${code}
          and user_id = ${userId}
        returning user_id as id, user_id`,
      ),
    ),
  );

export const listPasskeys = (database: Database, userId: string) =>
  database.read(
    (sql) => sql<Passkey[]>`
    select *
    from identity.passkeys
    where user_id = ${userId}
    order by created_at
    limit 50`,
  );

export const findPasskey = (database: Database, id: Buffer) =>
  firstRow(
    database.read((sql) => sql<Passkey[]>`select * from identity.passkeys where id = ${id}`),
  );

/** @returns whether the challenge was not used before */
export const consumeChallenge = (database: Database, challenge: Buffer) =>
  hasChanged(
    database.write(
      (sql) => sql`
      insert into identity.used_challenges (digest, expires_at)
      values (${sha256(challenge.toString('hex'))}, now() + interval '10 minutes')
      on conflict do nothing`,
    ),
  );

/**
 * If the counter did not grow, there may be a copy (WebAuthn, 6.1.1). Synchronized passkeys always
 * send 0. Compared only with the column: beside a 0, the parameter would be an `int4`, and counters
 * have 32 bits without a sign.
 */
export const recordPasskeyUse = (database: Database, id: Buffer, counter: number) =>
  hasChanged(
    database.write(
      (sql) => sql`
      update identity.passkeys
      set counter = ${counter}, last_used_at = now()
      where id = ${id}
        and (counter < ${counter} or (counter = 0 and counter = ${counter}))`,
    ),
  );

/**
 * From now on, every login needs a factor.
 * @param checkedAt the account's time of change when the password was checked
 * @returns the account's time of change; null if there is an app already
 */
export const addTotp = (
  database: Database,
  actor: Actor,
  { id, key_id, client_key, commitment, blob }: SealedSecret,
  step: number,
  checkedAt: Date,
) =>
  addFactor(
    database,
    actor,
    id,
    'totp',
    (sql) => sql`
    insert into identity.totp (user_id, key_id, client_key, commitment, blob, last_step)
    select ${id}, ${key_id}, ${client_key}, ${commitment}, ${blob}, ${step}
    -- The password alone adds no factor beside another one. Nor does a password that was replaced.
    where ${actor.caller !== null} or exists (
      select from identity.users where id = ${id} and not second_factor
        and date_trunc('milliseconds', updated_at) = ${checkedAt})`,
  );

type NewPasskey = Omit<Passkey, 'created_at' | 'last_used_at'> & Readonly<{ counter: number }>;

/** @returns null if the passkey is registered already, for any user */
export const addPasskey = (database: Database, actor: Actor, passkey: NewPasskey) =>
  addFactor(
    database,
    actor,
    passkey.user_id,
    'passkey',
    (sql) => sql`insert into identity.passkeys ${sql(passkey)}`,
  );

const hasFactorSql = (sql: Sql, userId: string | null) =>
  sql`(select second_factor from identity.users where id = ${userId})`;

const addFactor = (
  database: Database,
  actor: Actor,
  userId: string,
  factor: 'totp' | 'passkey',
  insert: (sql: Sql) => Fragment,
) =>
  changing(database, actor, userId, async (sql) => {
    const added = sql`${insert(sql)} on conflict do nothing returning user_id as id, user_id`;
    const rows = await audited(sql, { event: 'factor.added', actor, detail: factor }, added);
    if (rows.length === 0) return null;
    // The first factor protects from whoever knew the password before, and could have kept codes.
    await sql`
      delete from identity.recovery_codes
      where user_id = ${userId} and not ${hasFactorSql(sql, userId)}`;
    return applyFactorChange(sql, userId);
  });

/** An added or removed factor ends pending sign-ins and, with the last one, the recovery codes. */
async function applyFactorChange(sql: Sql, userId: string) {
  const [row] = await sql<[{ second_factor: boolean; updated_at: Date }]>`
    update identity.users u
    set updated_at = now(), second_factor = exists (
      select from identity.totp where user_id = u.id
      union all select from identity.passkeys where user_id = u.id)
    where id = ${userId} returning second_factor, updated_at`;
  await sql`delete from identity.pending_sign_ins where user_id = ${userId}`;
  if (!row.second_factor) await sql`delete from identity.recovery_codes where user_id = ${userId}`;
  return row.updated_at;
}

/**
 * @param passkey the id of the one to remove
 * @returns how many were removed
 */
export const removeFactors = (
  database: Database,
  actor: Actor,
  userId: string,
  what: 'all' | 'totp' | 'passkey',
  passkey: Buffer | null = null,
) => changing(database, actor, userId, (sql) => removeFactorsOf(sql, actor, userId, what, passkey));

/**
 * In a transaction that has locked the user. An administrator removes all, and the user's sessions
 * end.
 * @returns as above
 */
export async function removeFactorsOf(
  sql: Sql,
  actor: Actor,
  userId: string,
  what: 'all' | 'totp' | 'passkey',
  passkey: Buffer | null = null,
) {
  const passkeys = await sql`
    delete from identity.passkeys
    where user_id = ${userId}
      and (id = ${passkey} or ${what === 'all'})`;
  const apps = await sql`
    delete from identity.totp
    where user_id = ${userId}
      and ${what !== 'passkey'}`;
  const count = passkeys.count + apps.count;
  if (count === 0) return 0;
  await applyFactorChange(sql, userId);
  await insertAudit(sql, { event: 'factor.removed', actor, detail: what }, userId, count);
  if (what === 'all') await endSessions(sql, actor, userId);
  return count;
}

export const countRecoveryCodes = async (database: Database, userId: string) =>
  (await database.read((sql) => sql`select from identity.recovery_codes where user_id = ${userId}`))
    .count;

/** @returns whether the codes were replaced: there are none without a second factor */
export const replaceRecoveryCodes = (
  database: Database,
  actor: Actor,
  userId: string,
  digests: readonly Buffer[],
) =>
  changing(database, actor, userId, async (sql) => {
    await sql`delete from identity.recovery_codes where user_id = ${userId}`;
    const { count } = await sql`
      insert into identity.recovery_codes (digest, user_id)
      select unnest(${arrayLiteral(digests)}::text::bytea[]), ${userId}
      where ${hasFactorSql(sql, userId)}`;
    if (count === 0) return false;
    const entry = { event: 'factor.added', actor, detail: 'recovery codes' } as const;
    await insertAudit(sql, entry, userId, digests.length);
    return true;
  });
