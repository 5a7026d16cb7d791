import { digest } from '../../crypto/token.ts';
import { arrayLiteral } from '../../db/batch.ts';
import type { Database, Sql } from '../../db/pool.ts';
import type { SealedSecret } from '../../crypto/sealed.ts';
import type { Account } from '../model.ts';
import { type Actor, audited, changing, insertAudit } from '../store/audit.ts';
import { userColumns } from '../store/rows.ts';
import { endSessions } from '../store/sessions.ts';
import type { Registered } from './webauthn.ts';

/** `now`: seconds since 1970, by the database's clock. */
export type Totp = SealedSecret & Readonly<{ confirmed: boolean; now: number }>;
export type Passkey = Readonly<{
  id: Buffer; user_id: string; name: string; algorithm: number; spki: Buffer; counter: string;
  is_backup_eligible: boolean; created_at: Date; last_used_at: Date | null;
}>;

const passkeyColumns = (sql: Sql) => sql`
  id, user_id, name, algorithm, spki, counter::text, is_backup_eligible, created_at, last_used_at`;

/** By id, for the second step of a sign-in. */
export async function findAccountById(database: Database, id: string): Promise<Account | null> {
  const [account] = await database.read((sql) => sql<Account[]>`
    select ${userColumns(sql)}, u.password_hash, u.second_factor,
      case when u.password_generated then u.password_set_at + interval '24 hours' end as password_expires_at,
      u.password_generated and u.password_set_at + interval '24 hours' <= now() as password_expired
    from identity.users u where u.id = ${id} and u.deleted_at is null`);
  return account ?? null;
}

// --- TOTP

export async function findTotp(database: Database, userId: string): Promise<Totp | null> {
  const [totp] = await database.read((sql) => sql<Totp[]>`
    select id, key_id, client_key, commitment, blob, confirmed, extract(epoch from now())::float8 as now
    from identity.totp
    where user_id = ${userId} and (confirmed or created_at > now() - interval '10 minutes')`);
  return totp ?? null;
}

/** Replaces an unconfirmed secret, never one in use. */
export async function saveTotp(database: Database, userId: string, secret: SealedSecret): Promise<void> {
  const { id, key_id, client_key, commitment, blob } = secret;
  await database.write((sql) => sql`
    insert into identity.totp as t (user_id, id, key_id, client_key, commitment, blob)
    values (${userId}, ${id}, ${key_id}, ${client_key}, ${commitment}, ${blob})
    on conflict (user_id) do update set id = excluded.id, key_id = excluded.key_id, client_key = excluded.client_key,
      commitment = excluded.commitment, blob = excluded.blob, created_at = now()
    where not t.confirmed`);
}

/** The first right code: from now on, every login needs one. @returns false if another request confirmed it before */
export async function confirmTotp(
  database: Database, actor: Actor, userId: string, id: string, step: number,
): Promise<boolean> {
  const isConfirmed = await changing(database, actor, userId, async (sql) => {
    const rows = await audited(sql, { event: 'factor.added', actor, detail: 'totp' }, sql`
      update identity.totp set confirmed = true, last_step = ${step}
      where user_id = ${userId} and id = ${id} and not confirmed returning user_id as id, user_id`);
    if (rows.length > 0) await updateFlag(sql, userId);
    return rows.length > 0;
  });
  return isConfirmed === true;
}

/** Each step is accepted once, across replicas, and no earlier one after it (RFC 6238, 5.2; ASVS 6.5.1). */
export async function useTotpStep(database: Database, userId: string, step: number): Promise<boolean> {
  const used = await database.write((sql) => sql`
    update identity.totp set last_step = ${step} where user_id = ${userId} and confirmed and last_step < ${step}`);
  return used.count === 1;
}

// --- Recovery codes

export async function replaceRecoveryCodes(
  database: Database, actor: Actor, userId: string, digests: readonly Buffer[],
): Promise<void> {
  await changing(database, actor, userId, async (sql) => {
    await sql`delete from identity.recovery_codes where user_id = ${userId}`;
    await sql`
      insert into identity.recovery_codes (digest, user_id)
      select unnest(${arrayLiteral(digests)}::text::bytea[]), ${userId}`;
    const subject = { userId, targetId: userId, count: digests.length };
    await insertAudit(sql, { event: 'factor.added', actor, detail: 'recovery codes' }, subject);
  });
}

/** @returns whether this was one of the user's codes; it is none any more */
export async function useRecoveryCode(
  database: Database, actor: Actor, userId: string, code: Buffer,
): Promise<boolean> {
  const rows = await database.write((sql) => audited(sql, { event: 'recovery.used', actor }, sql`
    delete from identity.recovery_codes where digest = ${code} and user_id = ${userId}
    returning user_id as id, user_id`));
  return rows.length === 1;
}

export async function countRecoveryCodes(database: Database, userId: string): Promise<number> {
  const [row] = await database.read((sql) => sql<[{ n: number }]>`
    select count(*)::int as n from identity.recovery_codes where user_id = ${userId}`);
  return row.n;
}

export async function noteFailure(database: Database, actor: Actor, userId: string): Promise<void> {
  await database.write((sql) => audited(sql, { event: 'factor.failed', actor }, sql`
    select id, id as user_id from identity.users where id = ${userId}`));
}

// --- Passkeys

export const listPasskeys = (database: Database, userId: string): Promise<Passkey[]> =>
  database.read((sql) => sql<Passkey[]>`
    select ${passkeyColumns(sql)} from identity.passkeys where user_id = ${userId} order by created_at limit 50`);

export async function findPasskey(database: Database, id: Buffer): Promise<Passkey | null> {
  const [found] = await database.read((sql) => sql<Passkey[]>`
    select ${passkeyColumns(sql)} from identity.passkeys where id = ${id}`);
  return found ?? null;
}

/** @returns false if the passkey is registered already, for anybody, or the challenge was used */
export async function addPasskey(
  database: Database, actor: Actor, userId: string, name: string, { id, key, counter, isBackupEligible }: Registered,
  challenge: Buffer,
): Promise<boolean> {
  const isAdded = await changing(database, actor, userId, async (sql) => {
    if (!(await useChallenge(sql, challenge))) return false;
    const rows = await audited(sql, { event: 'factor.added', actor, detail: 'passkey' }, sql`
      insert into identity.passkeys (id, user_id, name, algorithm, spki, counter, is_backup_eligible)
      values (${id}, ${userId}, ${name}, ${key.algorithm}, ${key.spki}, ${counter}, ${isBackupEligible})
      on conflict do nothing returning user_id as id, user_id`);
    if (rows.length > 0) await updateFlag(sql, userId);
    return rows.length > 0;
  });
  return isAdded === true;
}

/**
 * Uses up the challenge and stores the counter, unless it did not grow: then a copy of the passkey may exist
 * (WebAuthn, 6.1.1). Synchronized passkeys always send 0.
 */
export function usePasskey(database: Database, id: Buffer, counter: number, challenge: Buffer): Promise<boolean> {
  return database.transaction(async (sql) => {
    if (!(await useChallenge(sql, challenge))) return false;
    const used = await sql`
      update identity.passkeys set counter = ${counter}, last_used_at = now()
      where id = ${id} and (counter < ${counter} or (counter = 0 and ${counter} = 0))`;
    return used.count === 1;
  });
}

/** @returns whether nobody has used it before */
async function useChallenge(sql: Sql, challenge: Buffer): Promise<boolean> {
  const used = await sql`
    insert into identity.used_challenges (digest, expires_at) values (${challenge}, now() + interval '10 minutes')
    on conflict do nothing`;
  return used.count === 1;
}

/** Seconds since 1970. */
export async function readClock(database: Database): Promise<number> {
  const [row] = await database.read((sql) => sql<[{ now: number }]>`select extract(epoch from now())::float8 as now`);
  return row.now;
}

// --- Removal

export type Removal = 'all' | 'totp' | Readonly<{ passkey: Buffer }>;

/** @param ending whether all sessions of the user end, too */
export async function removeFactors(
  database: Database, actor: Actor, userId: string, what: Removal, ending: boolean,
): Promise<void> {
  await changing(database, actor, userId, async (sql) => {
    const passkey = typeof what === 'object' ? sql`id = ${what.passkey}` : what === 'all' ? sql`true` : sql`false`;
    const totp = what === 'totp' || what === 'all' ? sql`true` : sql`false`;
    const [removed] = await sql<[{ n: number }]>`
      with keys as (delete from identity.passkeys where user_id = ${userId} and ${passkey} returning 1),
        codes as (delete from identity.totp where user_id = ${userId} and ${totp} and confirmed returning 1)
      select (select count(*) from keys)::int + (select count(*) from codes)::int as n`;
    await updateFlag(sql, userId);
    const detail = typeof what === 'object' ? 'passkey' : what;
    const subject = { userId, targetId: userId, count: removed.n };
    if (removed.n > 0) await insertAudit(sql, { event: 'factor.removed', actor, detail }, subject);
    if (removed.n > 0 && ending) await endSessions(sql, actor, userId);
  });
}

/** Whether a login needs a second factor. Without one, recovery codes and pending sign-ins are void. */
async function updateFlag(sql: Sql, userId: string): Promise<void> {
  const [row] = await sql<[{ second_factor: boolean }]>`
    update identity.users u set updated_at = now(), second_factor =
      exists (select from identity.totp where user_id = u.id and confirmed)
      or exists (select from identity.passkeys where user_id = u.id)
    where id = ${userId} returning second_factor`;
  await sql`delete from identity.pending_sign_ins where user_id = ${userId}`;
  if (!row.second_factor) await sql`delete from identity.recovery_codes where user_id = ${userId}`;
}

// --- A sign-in whose password was right

/** @param passwordHash a change of the password ends the sign-in */
export async function insertPending(database: Database, token: string, { id, password_hash }: Account): Promise<void> {
  await database.write((sql) => sql`
    insert into identity.pending_sign_ins (token_digest, user_id, password_digest, expires_at)
    values (${digest(token)}, ${id}, ${digest(password_hash ?? '')}, now() + interval '10 minutes')`);
}

const MAX_CODES = 5;
export type Pending = Readonly<{ user_id: string; password_digest: Buffer }>;

/** Counts an attempt before it is checked. @returns null without such a sign-in, or without an attempt left */
export async function takePendingAttempt(database: Database, token: string): Promise<Pending | null> {
  const [row] = await database.write((sql) => sql<Pending[]>`
    update identity.pending_sign_ins set attempts = attempts + 1
    where token_digest = ${digest(token)} and attempts < ${MAX_CODES} and expires_at > now()
    returning user_id, password_digest`);
  return row ?? null;
}

export async function findPending(database: Database, token: string): Promise<Pending | null> {
  const [row] = await database.read((sql) => sql<Pending[]>`
    select user_id, password_digest from identity.pending_sign_ins
    where token_digest = ${digest(token)} and attempts < ${MAX_CODES} and expires_at > now()`);
  return row ?? null;
}

export async function removePending(database: Database, token: string): Promise<void> {
  await database.write((sql) => sql`delete from identity.pending_sign_ins where token_digest = ${digest(token)}`);
}

/** @returns how many; at most `max` */
export async function removeStale(database: Database, max: number): Promise<number> {
  const removed = await database.write((sql) => sql`
    with pending as (
      delete from identity.pending_sign_ins where token_digest = any (array(
        select token_digest from identity.pending_sign_ins where expires_at < now() order by expires_at limit ${max}))
      returning 1)
    delete from identity.used_challenges where digest = any (array(
      select digest from identity.used_challenges where expires_at < now() order by expires_at limit ${max}))`);
  return removed.count;
}
