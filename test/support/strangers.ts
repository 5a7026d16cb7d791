/** Logins from chosen addresses, as a trusted proxy passes them on; and the throttle's time, moved by hand. */
import type { Sql } from 'postgres';
import { type Answer, ask } from './gatehouse.ts';

/** The environment in which `loginFrom` is believed. */
export const BEHIND_PROXY = { TRUSTED_PROXIES: '127.0.0.1' };

export const loginFrom = (identityUrl: string, address: string, username: string, password = 'not the password'): Promise<Answer> =>
  ask('POST', `${identityUrl}/api/auth/login`, { body: { username, password }, headers: { 'x-forwarded-for': address } });

/** One login after the other. @returns the status of each */
export async function loginsFrom(identityUrl: string, address: string, username: string, count: number): Promise<number[]> {
  const statuses: number[] = [];
  for (let index = 0; index < count; index += 1) statuses.push((await loginFrom(identityUrl, address, username)).status);
  return statuses;
}

/** An address that no other call has been given. */
export function strangeAddress(): string {
  strangers += 1;
  return `10.${(strangers >> 16) & 255}.${(strangers >> 8) & 255}.${strangers & 255}`;
}
let strangers = 0;

/** Every failure that was counted, and every login that made a network known, happened so much earlier. */
export async function passTime(sql: Sql, seconds: number): Promise<void> {
  await sql`
    update identity.throttles set
      failures = array(select f - make_interval(secs => ${seconds}) from unnest(failures) with ordinality as one (f, place) order by place),
      succeeded_at = succeeded_at - make_interval(secs => ${seconds}),
      forget_at = forget_at - make_interval(secs => ${seconds})`;
}

/** Fills the one row that holds `present` failures up to `count`; those that are added happened half an hour ago. */
export async function fillFailures(sql: Sql, present: number, count: number): Promise<void> {
  const { count: rows } = await sql`
    update identity.throttles set failures = failures || array_fill(now() - interval '30 minutes', array[${count - present}::int])
    where cardinality(failures) = ${present}`;
  if (rows !== 1) throw new Error(`${rows} rows with ${present} failures, where there should be one`);
}
