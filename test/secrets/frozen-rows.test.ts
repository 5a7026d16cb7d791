/** Rows of every age, as they lie in somebody's database, opened over HTTP by the service as it is now. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { after, test } from 'node:test';
import { readConfig } from '../support/settings.ts';
import type { ServiceContext } from '../../src/runtime/context.ts';
import { STYLE } from '../../src/secrets/settings.ts';
import { start as startSecrets } from '../../src/secrets/start.ts';
import { configure, serve } from '../../src/serve.ts';
import { createDatabase } from '../support/database.ts';
import { ask, AUTH_TOKEN, variables } from '../support/gatehouse.ts';
import { until } from '../support/until.ts';

interface FrozenRow {
  readonly serverSecret: string;
  readonly keyId: string;
  readonly clientKey: string;
  readonly passphrase?: string | null;
  readonly id: string;
  readonly expiresAt: number | null;
  readonly maxReads: number | null;
  readonly text: string;
  readonly commitment: string;
  readonly blob: string;
  readonly tag?: string;
}

const read = (name: string): FrozenRow[] => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), 'utf8')).boxes;
/** The first are older than tags. */
const rows = [...read('frozen-v1'), ...read('frozen-v2')];
const secrets = [...new Set(rows.map(({ serverSecret }) => serverSecret))];

const { url, sql } = await createDatabase();

/**
 * The whole service, started with given server secrets. They are put in behind the reading of the variables, because
 * those of version 1 were frozen when a server secret could still have a comma.
 */
async function start(serverSecret: string, previousSecrets: string[]) {
  const { process } = await configure(['secrets'], 'serve', variables(url));
  const settings = readConfig(['secrets'], 'serve', variables(url)).secrets ?? assert.fail();
  const use = async (context: ServiceContext) => startSecrets({ ...settings, serverSecret, previousSecrets }, context);
  const service = { name: 'secrets', host: settings.host, port: settings.port, style: STYLE, logFields: {}, use };
  const stopping = new AbortController();
  let written = '';
  const stdout = new PassThrough().on('data', (text) => (written += String(text)));
  const running = serve({ process, services: [service] }, { stdout, stderr: new PassThrough() }, stopping.signal);
  after(async () => {
    stopping.abort();
    await running;
  });
  const log = () => written.split('\n').slice(0, -1).map((line): Record<string, unknown> => JSON.parse(line));
  await until(() => log().some(({ message }) => message === 'ready'));
  const port = String(log().find(({ message, service }) => message === 'listening' && service === 'secrets')?.port);
  const open = (id: string, body: object) => ask('POST', `http://127.0.0.1:${port}/api/store/decrypt?id=${id}`, { bearer: AUTH_TOKEN, body });
  return { log, open };
}

const bytes = (text: string | undefined) => (text === undefined ? null : Buffer.from(text, 'base64url'));
const [current = '', ...previous] = secrets;
const service = await start(current, previous);

/** As if they had been there all along: a row without a tag is one that an older version wrote. */
async function restore(row: FrozenRow): Promise<void> {
  await sql`delete from secrets.secrets where id = ${row.id}`;
  await sql`
    insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads)
    values (${row.id}, ${row.keyId}, ${bytes(row.commitment)}, ${bytes(row.blob)}, ${bytes(row.tag)},
      ${row.expiresAt === null ? null : new Date(row.expiresAt)}, ${row.maxReads})`;
}

const tagless = rows.filter(({ tag }) => tag === undefined).length;
test('there are rows of each kind: without a tag, with one, and locked', () => {
  assert.deepEqual([tagless, rows.length - tagless, rows.filter(({ passphrase }) => typeof passphrase === 'string').length], [6, 8, 6]);
});

rows.forEach((row, index) => {
  const kind = row.tag === undefined ? 'of version 1, without a tag,' : typeof row.passphrase === 'string' ? 'of version 2, locked,' : 'of version 1, tagged,';
  // The ends of some lie in 2030 and later, and then they are as gone as any.
  const isOver = row.expiresAt !== null && row.expiresAt <= Date.now();
  test(`frozen row ${index + 1}, ${kind} ${isOver ? 'has expired' : 'opens with its key'}`, async () => {
    await restore(row);
    const keys = { secret: row.clientKey, ...(typeof row.passphrase === 'string' ? { passphrase: row.passphrase } : {}) };
    const answer = await service.open(row.id, keys);
    if (isOver) return assert.equal(answer.status, 404);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.password, row.text);
    const again = await service.open(row.id, keys);
    assert.equal(again.status, row.maxReads === 1 ? 404 : 200, 'and as often as it may be read');
  });
});

test('a row without a tag gives nothing to the key of another, and what was edited in it shows to its own', async () => {
  const [row, other] = rows.filter(({ tag, maxReads, expiresAt }) => tag === undefined && expiresAt === null && maxReads !== 1);
  assert.ok(row && other);
  await restore(row);
  assert.equal((await service.open(row.id, { secret: other.clientKey })).status, 404);
  await sql`update secrets.secrets set max_reads = 1000 where id = ${row.id}`;
  assert.equal((await service.open(row.id, { secret: row.clientKey })).json.error.code, 'secret_damaged');
  assert.equal((await sql`select reads::int as reads from secrets.secrets where id = ${row.id}`)[0]?.reads, 0);
  await restore(row);
  assert.equal((await service.open(row.id, { secret: row.clientKey })).json.password, row.text);
});

test('nothing of all this was reported but the row that was edited', () => {
  const told = service.log().filter(({ level }) => level === 'error');
  assert.deepEqual(told.map(({ message }) => message), ['a stored secret has been altered: swapped, truncated or edited']);
});
