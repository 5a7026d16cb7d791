/** The errors that tests have caused are compared with those that the rows declare. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareCodes, readNoted } from '../../scripts/reply-codes.ts';

test('a code that a row does not declare, or that no test causes, is found', () => {
  const lineOf = (route: string, code: string) =>
    `gatehouse_requests_refused_total{service="webhook",route="${route}",reason="${code}"} 1\n`;
  const rows = [
    { method: 'GET', pattern: '/a', errors: ['not_found', 'conflict', 'internal'] },
    { method: 'GET', pattern: '/pages/{file}', errors: ['invalid_path', 'not_found'] },
  ] as const;
  const noted = readNoted(
    lineOf('GET /a', 'conflict') +
      lineOf('GET /a', 'forbidden') +
      lineOf('GET /b', 'internal') +
      lineOf('(none)', 'no_such_path') +
      lineOf('GET /pages/{file}', 'not_found'),
  );
  const undeclared = [
    'webhook GET /a sends, but does not declare: forbidden',
    'webhook GET /b sends, but does not declare: internal',
  ];
  assert.deepEqual(compareCodes(noted, { webhook: rows }, false), undeclared);
  assert.deepEqual(compareCodes(noted, { webhook: rows }, true), [
    ...undeclared,
    'webhook GET /a declares, but no test causes: not_found',
  ]);
});
