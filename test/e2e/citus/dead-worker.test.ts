/** A worker is away: its secrets cannot be used, all others can, and nothing is used up. */
import assert from 'node:assert/strict';
import { type Answer, ask } from '../../support/gatehouse.ts';
import { test } from '../../support/until.ts';
import { portsOf, startSecrets } from './cluster.ts';

function assertUnavailable(answer: Answer): void {
  assert.deepEqual([answer.status, answer.json.error.code], [503, 'unavailable']);
  assert.ok(Number(answer.headers.get('retry-after')) > 0);
}

test('a dead worker: its secrets are 503, also beside others, and no read is used up', async (t) => {
  const { citus, base, client, log } = await startSecrets(t);
  const [worker] = citus.workers;
  const keep = () => client.keep('text', { max_reads: 1 });
  const kept = await Promise.all(Array.from({ length: 24 }, keep));
  const ports = await portsOf(citus, kept);
  const isDead = ({ id }: { id: string }) => ports.get(id) === worker.port;
  const dead = kept.filter(isDead).length;
  assert.ok(dead > 2 && kept.length - dead > 2, 'each worker has secrets');

  await worker.kill();
  // All at once, so that they share statements.
  const readAll = () =>
    Promise.all(
      kept.map(async (one) => ({
        wasDead: isDead(one),
        answer: await client.decrypt(one.id, one.secret),
      })),
    );
  for (const { wasDead, answer } of await readAll()) {
    if (wasDead) assertUnavailable(answer);
    else assert.deepEqual([answer.status, answer.json.password], [200, 'text']);
  }
  const stored = await Promise.all(
    Array.from({ length: 24 }, () => client.encrypt({ password: 'new' })),
  );
  const statuses = new Set(stored.map(({ status }) => status));
  const problems = [...new Set(log().map(({ error }) => error))].join('\n');
  assert.deepEqual(statuses, new Set([201, 503]), problems);
  assertUnavailable(await client.list());
  // Other requests are served, and another replica could do no more.
  assert.equal((await ask('GET', `${base}/readyz`)).status, 200);

  await worker.start();
  for (const { wasDead, answer } of await readAll())
    assert.equal(answer.status, wasDead ? 200 : 404);
  assert.equal((await client.list()).status, 200);
});
