/** Rows that an earlier build stored, opened over HTTP by the service as it is now. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createDatabase } from '../../support/database.ts';
import { startGatehouse } from '../../support/gatehouse.ts';
import { secretsClient } from '../../support/secrets.ts';
import { readVectors } from '../../unit/vectors/data.ts';

interface FrozenRow {
  readonly serverSecret: string;
  readonly keyId: string;
  readonly clientKey: string;
  readonly passphrase: string | null;
  readonly id: string;
  readonly expiresAt: number | null;
  readonly maxReads: number | null;
  readonly text: string;
  readonly commitment: string;
  readonly blob: string;
  readonly tag: string;
}

const rows = readVectors<FrozenRow>('frozen-v2.jsonl');
const [current = '', ...previous] = new Set(rows.map(({ serverSecret }) => serverSecret));

const { url, sql } = await createDatabase();
const gatehouse = await startGatehouse({ after }, ['secrets'], url, {
  SERVER_SECRET: current,
  SERVER_SECRET_PREVIOUS: previous.join(),
});
const { decrypt } = secretsClient(gatehouse.url.secrets);

const bytes = (text: string) => Buffer.from(text, 'base64url');

test('the frozen rows include rows with and without a passphrase, under two server secrets', () => {
  const isLocked = rows.map(({ passphrase }) => passphrase !== null);
  assert.deepEqual([isLocked.filter(Boolean).length, isLocked.length, previous.length], [6, 8, 1]);
});

rows.forEach((row, index) => {
  // Some expire in 2030 or later, and are 404 from then on.
  const isExpired = row.expiresAt !== null && row.expiresAt <= Date.now();
  test(`frozen row ${index + 1}: ${isExpired ? 'has expired' : 'opens with its key'}`, async () => {
    await sql`
      insert into secrets.secrets (id, key_id, commitment, blob, tag, expires_at, max_reads)
      values (${row.id}, ${row.keyId}, ${bytes(row.commitment)}, ${bytes(row.blob)},
        ${bytes(row.tag)},
        ${row.expiresAt === null ? null : new Date(row.expiresAt)}, ${row.maxReads})`;
    const open = () => decrypt(row.id, row.clientKey, row.passphrase ?? undefined);
    const { status, json, text } = await open();
    assert.equal(status, isExpired ? 404 : 200, text);
    if (isExpired) return;
    assert.equal(json.password, row.text);
    assert.equal((await open()).status, row.maxReads === 1 ? 404 : 200);
  });
});

test('frozen rows: no errors are logged', () => {
  assert.deepEqual(
    gatehouse.log().filter(({ level }) => level === 'error'),
    [],
  );
});
