/** Commands as terminal sessions, `transcripts/*.txt`, on a real database and running services. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { KNOWN, openSession, runStep } from '../support/session.ts';
import { compare, parseTranscript } from '../support/transcript.ts';

const directory = join(import.meta.dirname, 'transcripts');

for (const name of readdirSync(directory)) {
  test(`transcript ${name}`, async (t) => {
    const transcript = parseTranscript(readFileSync(join(directory, name), 'utf8'), KNOWN);
    const session = await openSession(t, transcript);
    for (const { title, steps } of transcript.sections)
      await t.test(title, async () => {
        for (const step of steps) {
          const difference = compare(step, await runStep(step, session), session.values);
          assert.equal(difference, '', `${name}:${step.line}: ${step.command}\n${difference}`);
        }
      });
  });
}
