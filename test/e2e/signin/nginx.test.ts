/** The documented nginx configuration for sign-in pages, with a real nginx and a real browser. */
import { testSignin } from './cases.ts';
import { startSignin } from './setup.ts';

testSignin(await startSignin('nginx'));
