/** The totals of the lists are exact at every moment, whatever happens at once on several replicas. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, test } from 'node:test';
import { removeOldAudit } from '../../src/identity/store/audit.ts';
import { removeEndedSessions } from '../../src/identity/store/sessions.ts';
import { createDatabase } from '../support/database.ts';
import { type Answer, ask, logIn, startGatehouse, variables } from '../support/gatehouse.ts';
import { buildProgram, startProgram } from '../support/process.ts';
import { BEHIND_PROXY, loginFrom, strangeAddress } from '../support/strangers.ts';
import { recount, totals } from '../support/totals.ts';
import { addUser, assertSuccess, openIdentity, PASSWORD } from '../support/users.ts';

const { url: databaseUrl, sql } = await createDatabase();
const here = (await startGatehouse({ after }, ['identity'], databaseUrl, BEHIND_PROXY)).url.identity;
// The other one is a process of its own, with its own share of the totals.
const program = startProgram({ after }, buildProgram(), ['serve', 'identity'], { ...variables(databaseUrl), ...BEHIND_PROXY });
await program.ready('identity');
const replicas = [here, await program.url('identity')];
const database = openIdentity({ after }, databaseUrl);

/** What the lists answer, what the totals hold, and what there is to count. */
async function assertExact(bearer: string): Promise<void> {
  const total = async (path: string): Promise<number> => {
    const answer = await ask('GET', `${here}/api/${path}`, { bearer });
    assertSuccess(answer, 'paged');
    return answer.json._meta.pagination.total;
  };
  const owners = (await sql`select id from identity.users order by random() limit 12`).map(({ id }) => String(id));
  const paths = ['user/?limit=1', 'session/?limit=1', 'key/?limit=1', 'audit/?limit=1', ...owners.flatMap((id) => [`session/?limit=1&user=${id}`, `key/?limit=1&user=${id}`])];
  const answered = await Promise.all(paths.map(total));
  const held = await totals(sql);
  await recount(sql);
  assert.deepEqual(held, await totals(sql));
  assert.deepEqual(answered, await Promise.all(paths.map(total)));
}

/** The same numbers from 0 to 1 at every run (mulberry32). */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const ACTS = 600;
const AT_ONCE = 16;

for (const seed of [1, 2]) {
  test(`after ${ACTS} random acts, ${AT_ONCE} at once on two replicas, each total is what there is to count (${seed})`, { timeout: 120_000 }, async () => {
    const random = numbers(seed);
    const below = (limit: number) => Math.floor(random() * limit);
    const one = <T>(list: readonly T[]): T | undefined => list[below(list.length)];
    // What was there before has been counted by a replica that is gone.
    await recount(sql);
    await sql`update identity.totals set shard = 99 where owner = '00000000-0000-0000-0000-000000000000'`;
    const admin = await logIn(here);
    const users: Array<{ id: string; name: string }> = [];
    const tokens: string[] = [];
    const keys: string[] = [];
    for (let index = 0; index < 6; index += 1) {
      const name = `user-${seed}-${index}`;
      users.push({ name, id: await addUser(database, name) });
    }
    const send = (method: string, path: string, body?: unknown): Promise<Answer> =>
      ask(method, `${one(replicas)}/api/${path}`, { bearer: admin, ...(body === undefined ? {} : { body }) });
    let made = 0;
    const acts: ReadonlyArray<() => Promise<Answer | number>> = [
      ...Array.from({ length: 5 }, () => async () => {
        const answer = await loginFrom(one(replicas) ?? here, strangeAddress(), one(users)?.name ?? '', PASSWORD);
        if (answer.status === 200) tokens.push(answer.json.data.session);
        return answer;
      }),
      () => loginFrom(one(replicas) ?? here, strangeAddress(), one(users)?.name ?? '', 'wrong'),
      () => send('POST', 'auth/logout', { session: one(tokens) }),
      () => send('DELETE', `session/revoke?session=${one(tokens)}`),
      () => send('DELETE', `session/revoke/all/user?user=${one(users)?.id}`),
      async () => {
        const name = `user-${seed}-more-${(made += 1)}`;
        const answer = await send('POST', 'user/', { username: name, email: `${name}@example.org`, password: PASSWORD });
        if (answer.status === 201) users.push({ name, id: answer.json.data.id });
        return answer;
      },
      () => send('DELETE', `user/${users.splice(below(users.length - 2), users.length > 6 ? 1 : 0)[0]?.id ?? randomUUID()}`),
      () => send('PATCH', `user/${one(users)?.id}`, { enabled: random() < 0.7 }),
      ...[undefined, null].map((nobody) => async () => {
        const answer = await send('POST', 'key/', { user_id: nobody === null ? null : one(users)?.id });
        if (answer.status === 201) keys.push(answer.json.data.id);
        return answer;
      }),
      () => send('DELETE', `key/${one(keys) ?? randomUUID()}/revoke`),
      () => removeEndedSessions(database, 0, 5),
      () => removeOldAudit(database, 1, 20),
    ];
    let left = ACTS;
    let done = 0;
    const work = async () => {
      while (left > 0) {
        left -= 1;
        const outcome = await one(acts)?.();
        if (typeof outcome !== 'object') continue;
        assert.ok(outcome.status < 500, outcome.text);
        if (outcome.status < 300) done += 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    assert.ok(done > ACTS / 3, `only ${done} succeeded`);
    await assertExact(admin);
  });
}
