/**
 * Logins from chosen addresses, as a trusted proxy passes them on; and the throttle's time, moved
 * by hand.
 */
import type { Sql } from 'postgres';
import { type Answer, ask } from './gatehouse.ts';

/** The environment in which `loginFrom` is believed. */
export const BEHIND_PROXY = { TRUSTED_PROXIES: '127.0.0.1' };

export const loginFrom = (
  identityUrl: string,
  address: string,
  username: string,
  password = 'not the password',
): Promise<Answer> =>
  ask('POST', `${identityUrl}/api/auth/login`, {
    body: { username, password },
    headers: { 'x-forwarded-for': address },
  });

/** One login after the other. @returns the status of each */
export async function loginsFrom(
  identityUrl: string,
  address: string,
  username: string,
  count: number,
): Promise<number[]> {
  const statuses: number[] = [];
  for (let index = 0; index < count; index += 1)
    statuses.push((await loginFrom(identityUrl, address, username)).status);
  return statuses;
}

/** An address that no other call has been given. */
export function newAddress(): string {
  addresses += 1;
  return `10.${(addresses >> 16) & 255}.${(addresses >> 8) & 255}.${addresses & 255}`;
}
let addresses = 0;

/** Moves every count, delay and known network into the past. */
export async function passTime(sql: Sql, seconds: number): Promise<void> {
  const past = sql`make_interval(secs => ${seconds})`;
  await sql`
    update identity.throttles set window_ends_at = window_ends_at - ${past},
      blocked_until = blocked_until - ${past},
      known_until = known_until - ${past}`;
}

/**
 * Raises the one row that holds `present` failures to `count`, in a window that ends in half an
 * hour.
 */
export async function fillFailures(sql: Sql, present: number, count: number): Promise<void> {
  const { count: rows } = await sql`
    update identity.throttles set attempts = ${count},
      window_ends_at = now() + interval '30 minutes' where attempts = ${present}`;
  if (rows !== 1)
    throw new Error(`${rows} rows with ${present} failures, where there should be one`);
}
