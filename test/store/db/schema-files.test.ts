/** The steps of the schemas are files of SQL, and docs/schema.sql is what they make. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { describeSchemas, SCHEMA_FILE } from '../../../scripts/schema.ts';
import { SCHEMA as IDENTITY } from '../../../src/identity/migrations.ts';
import { SCHEMA as SECRETS } from '../../../src/secrets/migrations.ts';
import { SCHEMA as WEBHOOK } from '../../../src/webhook/migrations.ts';
import { createDatabase, createEmptyDatabase } from '../../support/database.ts';
import { root } from '../../support/process.ts';

const SCHEMAS = [IDENTITY, SECRETS, WEBHOOK];
const described = readFileSync(join(root, SCHEMA_FILE), 'utf8');

for (const { name, folder, steps } of SCHEMAS) {
  test(`each file of ${name} is a step, and there is no other`, () => {
    assert.deepEqual(
      readdirSync(folder).sort(),
      steps.map((step) => `${step}.sql`),
    );
  });
}

test('docs/schema.sql describes the migrated schemas', async (t) => {
  const { sql } = await createDatabase(t);
  assert.equal(await describeSchemas(sql), described, 'run: make schema');
});

test('without the program, the files make the same on an empty database, as psql -f runs them', async (t) => {
  const { sql } = await createEmptyDatabase(t);
  for (const { folder, steps } of SCHEMAS) {
    for (const step of steps) {
      await sql.unsafe(readFileSync(new URL(`${step}.sql`, folder), 'utf8')).simple();
    }
  }
  // The program keeps the numbers of the steps that it has applied in a table of its own.
  const ledgers = /\ncreate table \w+\.migrations \([^;]*;\n/g;
  assert.equal(described.match(ledgers)?.length, SCHEMAS.length);
  assert.equal(await describeSchemas(sql), described.replace(ledgers, ''));
});
