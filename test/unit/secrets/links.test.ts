/** Links as programs and people leave them on the way from the sender to the recipient. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findLink, type Kind } from '../../../src/secrets/pages/link.js';

const BASE = 'https://share.example.org';
const ID = '00112233-4455-4677-8899-aabbccddeeff';
/** Characters of Base64url that are no letters are at the ends. */
const KEY = `-${'A'.repeat(41)}_`;
const LONG = `_${'b'.repeat(46)}-`;
const KINDS: readonly Kind[] = ['s', 'r', 'request', 'answer'];
/** What follows the # in each kind of link; a secret has two, with end-to-end encryption or not. */
const KEYS: ReadonlyArray<readonly [Kind, string]> = [
  ['s', KEY],
  ['s', `1.${KEY}.${LONG}`],
  ['r', KEY],
  ['request', `1.${KEY}.${KEY}.${LONG}`],
  ['answer', `1.${KEY}`],
];
const encoded = encodeURIComponent;
/** RFC 2045, 6.7: lines of at most 76 characters, the last of which is a mark. */
const softBreaks = (text: string, end: string) => text.replace(/.{75}(?=.)/g, `$&=${end}`);
const proofpoint = (link: string) =>
  link.replace(/[-:#_/]/g, (one) =>
    one === '/' ? '_' : `-${one.charCodeAt(0).toString(16).toUpperCase()}`,
  );
const SAFE_LINKS = 'https://eur01.safelinks.protection.outlook.com';

const CHANGES: Readonly<Record<string, (link: string) => string>> = {
  nothing: (link) => link,
  'a word before it, and a sentence behind it': (link) => `Open ${link}. It expires soon`,
  'an encoded #': (link) => link.replace('#', '%23'),
  'a # that was encoded twice': (link) => link.replace('#', '%2523'),
  'an encoding by five programs': (link) => [1, 2, 3, 4, 5].reduce(encoded, link),
  'an encoded # and parameters': (link) => `${link.replace('#', '%23')}?utm_source=mail&x=1`,
  'parameters before the #': (link) => link.replace('#', '?utm_source=a.b&utm_medium=mail#'),
  'parameters with an encoded # before the #': (link) => link.replace('#', '?x=a%23b#'),
  'parameters behind the keys': (link) => `${link}?fbclid=IwAR0abc`,
  'further parameters behind the keys': (link) => `${link}&utm_source=mail`,
  'a slash before the #': (link) => link.replace('#', '/#'),
  'two #': (link) => link.replace('#', '##'),
  'an id in capitals': (link) => link.replace(ID, ID.toUpperCase()),
  'a wide #': (link) => link.replace('#', '＃'),
  'an encoded wide #': (link) => link.replace('#', '%EF%BC%83'),
  'a # as an entity': (link) => link.replace('#', '&#35;'),
  'a # as an entity that was encoded again': (link) => link.replace('#', '&amp;#x23;'),
  'the backslashes of Markdown': (link) => link.replace(/[#_]/g, '\\$&'),
  'dashes of a word processor': (link) => link.replace('-', '–').replaceAll('-', '\u2011'),
  'a text fragment': (link) => `${link}:~:text=secret`,
  'an address in HTML': (link) => `<a href="${link}">open</a>`,
  'a link of Markdown': (link) => `[${link}](${link})`,
  'a link of Slack': (link) => `<${link}|open>`,
  'itself behind it, as Outlook writes plain text': (link) => `${link}<${link}>`,
  'an entity behind it': (link) => `${link}&gt;`,
  'marks of quoted-printable': (link) => softBreaks(link, '\r\n'),
  'the same behind some words': (link) => softBreaks(`${'Please open '.repeat(4)}${link}`, '\r\n'),
  'the same without the newlines': (link) => softBreaks(link, ''),
  'the same, encoded by a browser': (link) => softBreaks(link, '%0D%0A'),
  'a quoted-printable #': (link) => softBreaks(link.replace('#', '=23'), '\r\n'),
  'a line break in the key': (link) => `${link.slice(0, 80)}\n${link.slice(80)}`,
  'the mark of a reply': (link) => `${link.slice(0, 80)}\n> ${link.slice(80)}`,
  'an encoded space in the key': (link) => `${link.slice(0, 90)}%20${link.slice(90)}`,
  'a zero width space in the key': (link) => `${link.slice(0, 90)}\u200b${link.slice(90)}`,
  'an encoded zero width space': (link) => `${link.slice(0, 90)}%E2%80%8B${link.slice(90)}`,
  'a soft hyphen in the id': (link) => `${link.slice(0, 40)}\u00ad${link.slice(40)}`,
  'a byte order mark': (link) => `\ufeff${link}`,
  'Safe Links': (link) => `${SAFE_LINKS}/?url=${encoded(link)}&data=05%7C02&reserved=0`,
  'Safe Links around an encoded #': (link) =>
    `${SAFE_LINKS}/?url=${encoded(link.replace('#', '%23'))}&data=05%7C02`,
  'Safe Links around Safe Links': (link) =>
    `${SAFE_LINKS}/?url=${encoded(`${SAFE_LINKS}/?url=${encoded(link)}&data=1`)}&data=2`,
  'a wrapper that does not encode': (link) => `https://www.google.com/url?q=${link}&sa=D`,
  'a wrapper in the path': (link) => `https://secure-web.cisco.com/1a-b_c/${encoded(link)}`,
  'Proofpoint, version 2': (link) =>
    `https://urldefense.proofpoint.com/v2/url?u=${proofpoint(link)}&d=DwMFaQ&c=a-b_c`,
  'Proofpoint, version 3': (link) =>
    `https://urldefense.com/v3/__${link.replace('#', '*')}__;Iw!!NpxR!abc$`,
};

test('a link is found whatever programs and people have made of it', () => {
  for (const [what, change] of Object.entries(CHANGES)) {
    for (const [kind, keys] of KEYS) {
      const text = change(`${BASE}/${kind}/${ID}#${keys}`);
      assert.deepEqual(findLink(text, KINDS), { base: BASE, kind, id: ID, keys }, what);
    }
  }
});

test('a link is found with any mark behind it, as it is or encoded', () => {
  const marks = [...'.,;:!?)]}>"\'*_~|/\\`…。”»', '...', ').', '">', '_.'];
  for (const mark of marks.flatMap((one) => [one, encoded(one)])) {
    for (const [kind, keys] of KEYS)
      assert.equal(findLink(`${BASE}/${kind}/${ID}#${keys}${mark}`, KINDS)?.keys, keys, mark);
  }
});

test('the base of a link has its port and the folder of the service', () => {
  for (const base of [
    'http://localhost:8080',
    'https://example.org/gatehouse',
    'https://[::1]:8',
    // Not UTF-8: what cannot be decoded stays as it is.
    'https://example.org/caf%E9',
  ])
    assert.equal(findLink(`${base}/s/${ID}%23${KEY}`, KINDS)?.base, base);
  const defended = `https://a/v2/url?u=${proofpoint(`http://b/s/${ID}#${KEY}`)}`;
  assert.equal(findLink(defended, KINDS)?.base, 'http://b');
  assert.equal(findLink(`/s/${ID}#${KEY}`, KINDS)?.base, '', 'only at the start of the text');
  assert.equal(findLink(`https://a host/s/${ID}#${KEY}`, KINDS), null);
  assert.equal(findLink(`ftp://host/s/${ID}#${KEY}`, KINDS), null);
});

test('keys that were cut, joined or extended are not found, wherever they were cut', () => {
  for (const [kind, keys] of KEYS) {
    const link = `${BASE}/${kind}/${ID}#${keys}`;
    for (let length = 0; length < link.length; length += 1) {
      for (const end of ['', '.', '>', '=\n'])
        assert.equal(findLink(link.slice(0, length) + end, KINDS), null, link.slice(0, length));
    }
    for (const end of ['x', '.x', '-x', '_1']) assert.equal(findLink(link + end, KINDS), null, end);
  }
  // Without the mark at its start, an end-to-end link would use a read up and show the envelope.
  assert.equal(findLink(`${BASE}/s/${ID}#${KEY}.${LONG}`, KINDS), null);
});

test('a page reads only links of its own kind', () => {
  const address = `${BASE}/r/${ID}?x=${BASE}/s/${ID}#${KEY}`;
  assert.equal(findLink(address, ['r'])?.kind, 'r');
  assert.equal(findLink(`${BASE}/r/${ID}#${KEY}`, ['s', 'request', 'answer']), null);
});
