import assert from 'node:assert/strict';
import test from 'node:test';
import { auditCsv } from '../../../../src/identity/lists.ts';
import { programOf } from '../../../../src/identity/signin/pages.ts';

const WINDOWS = 'Mozilla/5.0 (Windows NT 10.0; Win64; x64)';
const MAC = 'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)';
const LINUX = 'Mozilla/5.0 (X11; Linux x86_64';
const PIXEL = 'Mozilla/5.0 (Linux; Android 10; K)';
const IPHONE = 'Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X)';
const IPAD = 'Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X)';
const BLINK = 'AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0';
const WEBKIT = 'AppleWebKit/605.1.15 (KHTML, like Gecko)';

const PROGRAMS: Readonly<Record<string, string>> = {
  [`${WINDOWS} ${BLINK} Safari/537.36`]: 'Chrome on Windows',
  [`${WINDOWS} ${BLINK} Safari/537.36 Edg/126.0.2592.87`]: 'Edge on Windows',
  [`${WINDOWS} ${BLINK} Safari/537.36 OPR/112.0.0.0`]: 'Opera on Windows',
  [`${WINDOWS} ${BLINK} Safari/537.36 Vivaldi/6.8`]: 'Vivaldi on Windows',
  [`${LINUX}; rv:128.0) Gecko/20100101 Firefox/128.0`]: 'Firefox on Linux',
  [`${LINUX}) ${BLINK} Safari/537.36`]: 'Chrome on Linux',
  [`Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) ${BLINK} Safari/537.36`]: 'Chrome on ChromeOS',
  [`${MAC} ${WEBKIT} Version/17.5 Safari/605.1.15`]: 'Safari on Mac OS X',
  [`${PIXEL} ${BLINK} Mobile Safari/537.36`]: 'Chrome on Android',
  [`${PIXEL} ${BLINK} Mobile Safari/537.36 EdgA/126.0.0.0`]: 'Edge on Android',
  [`${PIXEL} ${BLINK} Mobile Safari/537.36 OPR/83.0.0.0`]: 'Opera on Android',
  [`${PIXEL} AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/25.0 Chrome/121.0.0.0 Mobile Safari/537.36`]:
    'Samsung Internet on Android',
  'Mozilla/5.0 (Android 14; Mobile; rv:128.0) Gecko/128.0 Firefox/128.0': 'Firefox on Android',
  [`${IPHONE} ${WEBKIT} Version/17.5 Mobile/15E148 Safari/604.1`]: 'Safari on iPhone',
  [`${IPHONE} ${WEBKIT} CriOS/126.0.6478.153 Mobile/15E148 Safari/604.1`]: 'Chrome on iPhone',
  [`${IPHONE} ${WEBKIT} FxiOS/128.0 Mobile/15E148 Safari/605.1.15`]: 'Firefox on iPhone',
  [`${IPHONE} ${WEBKIT} Version/17.0 EdgiOS/126.0.2592.86 Mobile/15E148 Safari/604.1`]:
    'Edge on iPhone',
  [`${IPHONE} ${WEBKIT} Version/17.5 Mobile/15E148 Safari/604.1 OPT/5.0.4`]: 'Opera on iPhone',
  [`${IPHONE} ${WEBKIT} Version/17.5 Mobile/15E148 Safari/604.1 OPX/2.4.5`]: 'Opera on iPhone',
  [`${IPHONE} ${WEBKIT} OPiOS/16.0.15.124050 Mobile/15E148 Safari/9537.53`]: 'Opera on iPhone',
  [`${IPHONE} ${WEBKIT} Focus/8.1.9 Mobile/15E148`]: 'Firefox on iPhone',
  [`${IPHONE} ${WEBKIT} Version/17.5 Mobile/15E148 DuckDuckGo/7 Safari/605.1.15`]:
    'DuckDuckGo on iPhone',
  [`${MAC} ${WEBKIT} Version/17.5 Safari/605.1.15 Ddg/17.5`]: 'DuckDuckGo on Mac OS X',
  [`${WINDOWS} ${BLINK} YaBrowser/24.6.0.0 Safari/537.36`]: 'Yandex on Windows',
  'Mozilla/5.0 (iPod touch; CPU iPhone OS 12_5 like Mac OS X) AppleWebKit/605.1.15 Safari/604.1':
    'Safari on iPhone',
  [`${IPAD} ${WEBKIT} CriOS/126.0.6478.153 Mobile/15E148 Safari/604.1`]: 'Chrome on iPad',
  'curl/8.8.0': 'curl/8.8.0',
  '': 'Unknown program',
};
for (const [agent, name] of Object.entries(PROGRAMS)) {
  test(`${name} is recognized`, () => assert.equal(programOf(agent), name, agent));
}

test('the audit trail as CSV begins with a byte order mark, for Excel', () => {
  const { text } = auditCsv([]);
  assert.deepEqual([...Buffer.from(text).subarray(0, 3)], [0xef, 0xbb, 0xbf]);
  assert.match(text, /^\ufeff"actor","user","id",[^\n]*\r\n$/);
});
