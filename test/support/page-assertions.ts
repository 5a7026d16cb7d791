import { createFrame } from '../../src/platform/http/site/pages.ts';
import { SITE } from './service-context.ts';

/** What every answer that is a page, or a part of one, carries. */
export const PAGE_SECURITY = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
};
export const SCRIPT = 'text/javascript; charset=utf-8';

/** A page as the service sends it: its file in the frame of the site. */
export const framed = (name: string, html: string): string =>
  name.endsWith('.html') ? createFrame(SITE)(html.replaceAll('{{site}}', SITE.SITE_NAME)) : html;
/** What a page loads in addition to its own scripts. */
export const FRAME_FILES = ['logo', 'site.css', 'style.css'];
