/** No login tells who exists, neither by the answer nor by the work that it takes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KINDS, startRejecting } from '../../../support/rejected-logins.ts';
import { assertError } from '../../../support/users.ts';

const { gatehouse, tryOne } = await startRejecting({ logN: 4, r: 8, p: 1 });

test('body and headers are the same for all but the request id and the date, after one hash', async () => {
  const seen = new Set<string>();
  for (const [what, names, password] of KINDS) {
    const before = gatehouse.hashes();
    const answer = await tryOne(names, password, 0);
    assert.equal(gatehouse.hashes() - before, 1, what);
    assertError(answer, 401, 'invalid_credentials');
    const { request_id: requestId } = answer.json._meta;
    const headers = [...answer.headers].filter(([name]) => name !== 'date');
    const told = JSON.stringify([answer.status, headers, answer.text]).replaceAll(
      requestId,
      'REQUEST',
    );
    seen.add(told);
    assert.equal(seen.size, 1, `${what}: ${told}`);
  }
});
