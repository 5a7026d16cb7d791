/**
 * A sender whose webhook tokens are revoked by command, one before most faults and one during them.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import type { Finished } from '../../../support/process.ts';
import { withConnection } from '../../../../scripts/postgres.ts';
import { choose } from '../random.ts';
import type { LoadClient } from './load.ts';
import type { Requests } from './requests.ts';

interface Token {
  readonly id: string;
  readonly text: string;
  /** The step after which it is revoked. */
  readonly revokedAt: number;
  /** `unknown`: the command to revoke it did not succeed. */
  state: 'active' | 'unknown' | 'revoked';
}

const REVOKED_AT = [20, 120];

/** @param run runs a command of the program */
export async function createTokenClient(
  requests: Requests,
  random: () => number,
  run: (words: readonly string[]) => Promise<Finished>,
  databaseUrl: string,
): Promise<LoadClient> {
  const tokens: Token[] = [];
  for (const revokedAt of REVOKED_AT) {
    const { code, stdout, stderr } = await run(['token', 'create', '--name', `load ${revokedAt}`]);
    assert.equal(code, 0, stderr);
    const text = stdout.trim();
    const [row] = await withConnection(
      databaseUrl,
      (sql) => sql<Array<{ id: string }>>`
      select id from webhook.tokens where digest = ${createHash('sha256').update(text).digest()}`,
    );
    tokens.push({ id: row?.id ?? '', text, revokedAt, state: 'active' });
  }

  async function post({ text, state, id }: Token): Promise<void> {
    const expected = { active: [200], revoked: [401], unknown: [200, 401] }[state];
    const body = { event: 'load.token', data: { page_id: id } };
    const options = { about: `token ${id}, ${state}`, expected, bearer: text, body };
    await requests.send('webhook', 'POST', '/webhook', options);
  }

  let steps = 0;
  return {
    async step() {
      steps += 1;
      const due = tokens.find(({ state, revokedAt }) => state === 'active' && steps > revokedAt);
      const token = due ?? choose(random, tokens);
      if (due) {
        due.state = 'unknown';
        if ((await run(['token', 'revoke', due.id])).code === 0) due.state = 'revoked';
      }
      if (token) await post(token);
    },
    async check() {
      for (const token of tokens) await post(token);
    },
    summary: () => ({ revokedTokens: tokens.filter(({ state }) => state === 'revoked').length }),
  };
}
