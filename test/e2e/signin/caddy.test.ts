/** The documented Caddy configuration for sign-in pages, with a real Caddy and a real browser. */
import { testSignin } from './cases.ts';
import { startSignin } from './setup.ts';

testSignin(await startSignin('caddy'));
