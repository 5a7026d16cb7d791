/** No login tells who exists, neither by the answer nor by the work that it takes. */
import assert from 'node:assert/strict';
import { createHook } from 'node:async_hooks';
import { after, test } from 'node:test';
import { KINDS, startRejecting } from '../../../support/rejected-logins.ts';
import { assertError } from '../../../support/users.ts';

const { tryOne } = await startRejecting({ logN: 4, r: 8, p: 1 });
let hashes = 0;
const watching = createHook({
  init(_id, type) {
    if (type === 'SCRYPTREQUEST') hashes += 1;
  },
}).enable();
after(() => {
  watching.disable();
});

test('body and headers are the same for all but the request id and the date, after one hash', async () => {
  const seen = new Set<string>();
  for (const [what, names, password] of KINDS) {
    hashes = 0;
    const answer = await tryOne(names, password, 0);
    assert.equal(hashes, 1, what);
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
