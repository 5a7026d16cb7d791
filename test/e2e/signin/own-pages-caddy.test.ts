/** Share pages and inbox behind the sign-in, with a real Caddy as documented. */
import { testOwnPages } from './own-pages.ts';

await testOwnPages('caddy');
