/** Share pages and inbox behind the sign-in, with a real Caddy as documented. */
import { test } from 'node:test';
import { findProgram } from '../programs.ts';
import { testOwnPages } from './own-pages.ts';

if (findProgram('caddy') === undefined) {
  const reason = 'Caddy is not installed and the package manager could not install it';
  test('Caddy puts share pages and inbox behind the sign-in', { skip: reason }, () => {});
} else {
  await testOwnPages('caddy');
}
