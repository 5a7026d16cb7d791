/** The documented Caddy configuration for sign-in pages, with a real Caddy and a real Chromium. */
import { test } from 'node:test';
import { findProgram } from '../programs.ts';
import { testSignin } from './cases.ts';
import { startSignin } from './setup.ts';

if (findProgram('caddy') === undefined) {
  const reason = 'Caddy is not installed and the package manager could not install it';
  test('Caddy leads browsers to the sign-in page', { skip: reason }, () => {});
} else {
  testSignin(await startSignin('caddy'));
}
