/** What headers and socket say of a caller: address, network and credential. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bearerOf } from '../../../src/platform/http/credentials/guess-limit.ts';
import { Expected } from '../../../src/platform/runtime/env.ts';
import {
  clientAddress,
  networkOf,
  parseNetworks,
  canonicalAddress,
} from '../../../src/platform/http/wire/address.ts';
import { wordsOf } from '../../support/words.ts';

// Addresses are of the ranges for documentation: RFC 5737 and RFC 3849.
const PROXIES = parseNetworks('10.0.0.0/8, 2001:db8:ffff::/48,127.0.0.1');

const CASES: ReadonlyArray<
  readonly [why: string, socket: string, forwarded: string | undefined, client: string]
> = [
  ['no trusted proxy', '192.0.2.1', '198.51.100.9', '192.0.2.1'],
  ['a client that names a trusted proxy', '192.0.2.1', '198.51.100.9, 10.0.0.1', '192.0.2.1'],
  ['left of the client', '10.0.0.1', '203.0.113.5, 192.0.2.1', '192.0.2.1'],
  ['an invented proxy', '10.0.0.1', '203.0.113.5, 10.0.0.7, 192.0.2.1', '192.0.2.1'],
  ['a chain of proxies', '10.0.0.1', '203.0.113.5,192.0.2.1, 10.0.0.2 ,10.0.0.3', '192.0.2.1'],
  ['a chain across families', '127.0.0.1', '192.0.2.1, 2001:db8:ffff::5', '192.0.2.1'],
  ['an IPv6 client in capitals', '2001:db8:ffff::1', '2001:DB8::A', '2001:db8::a'],
  ['only proxies', '10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
  ['no header', '10.0.0.1', undefined, '10.0.0.1'],
  ['an empty header', '10.0.0.1', '', '10.0.0.1'],
  ['an empty last entry', '10.0.0.1', '192.0.2.1,', '10.0.0.1'],
  ['garbage', '10.0.0.1', 'unknown', '10.0.0.1'],
  ['garbage within', '10.0.0.1', '192.0.2.1, garbage, 10.0.0.2', '10.0.0.2'],
  ['ports', '10.0.0.1', '203.0.113.5:1, 192.0.2.1:4711, 10.0.0.2:80', '192.0.2.1'],
  ['IPv6 in brackets', '10.0.0.1', '[2001:DB8::1]', '2001:db8::1'],
  ['IPv6 with a port', '10.0.0.1', '[2001:db8::1]:443', '2001:db8::1'],
  ['a mapped address with a port', '10.0.0.1', '[::ffff:192.0.2.1]:1', '192.0.2.1'],
  ['garbage for a port', '10.0.0.1', '192.0.2.1:http', '10.0.0.1'],
  ['an empty port', '10.0.0.1', '192.0.2.1:', '10.0.0.1'],
  ['a port of six digits', '10.0.0.1', '192.0.2.1:123456', '10.0.0.1'],
  ['two addresses in brackets', '10.0.0.1', '[2001:db8::1][2001:db8::2]', '10.0.0.1'],
  ['a bracket that is not closed', '10.0.0.1', '[2001:db8::1', '10.0.0.1'],
  ['text after the brackets', '10.0.0.1', '[2001:db8::1]x', '10.0.0.1'],
  ['an address out of range', '10.0.0.1', '192.0.2.256', '10.0.0.1'],
  ['a mapped socket address', '::ffff:192.0.2.1', undefined, '192.0.2.1'],
  ['a mapped proxy', '::ffff:10.0.0.1', '192.0.2.1', '192.0.2.1'],
  ['a mapped proxy in the chain', '10.0.0.1', '::FFFF:c000:201, ::ffff:10.0.0.2', '192.0.2.1'],
  ['a link-local socket with its zone', 'fe80::1%eth0', '192.0.2.1', 'fe80::1%eth0'],
  ['a zone in the header', '10.0.0.1', 'fe80::1%eth0', 'fe80::1%eth0'],
  ['a socket that is already gone', '', '192.0.2.1', ''],
  ['thousands of entries', '10.0.0.1', `192.0.2.1${',10.0.0.1'.repeat(4_000)}`, '192.0.2.1'],
];

test("the client's address is the rightmost that is no trusted proxy", () => {
  for (const [why, socket, forwarded, client] of CASES)
    assert.equal(clientAddress(socket, forwarded, PROXIES), client, why);
  assert.equal(clientAddress('127.0.0.1', '192.0.2.1', parseNetworks('')), '127.0.0.1');
});

test('networks are addresses and CIDR ranges', () => {
  const list = parseNetworks(' 192.0.2.0/24 ,2001:db8::/32,, 198.51.100.7,::1 ');
  const isInside = (address: string) =>
    list.check(address, address.includes(':') ? 'ipv6' : 'ipv4');
  for (const inside of ['192.0.2.255', '198.51.100.7', '2001:db8:1::', '::1'])
    assert.ok(isInside(inside), inside);
  for (const outside of ['192.0.3.0', '198.51.100.8', '::2'])
    assert.ok(!isInside(outside), outside);
  assert.ok(parseNetworks('0.0.0.0/0').check('203.0.113.1', 'ipv4'));
  for (const wrong of wordsOf(`
    10.0.0.0/33 ::/129 10.0.0.0/ 10.0.0.0/-1 10.0.0.0/8/8 10.0.0/8 proxy.example /8
  `))
    assert.throws(() => parseNetworks(`127.0.0.1,${wrong}`), Expected, wrong);
});

test('an address has one canonical spelling', () => {
  for (const [given, plain] of [
    ['192.0.2.1', '192.0.2.1'],
    ['::FFFF:192.0.2.1', '192.0.2.1'],
    ['::ffff:999.0.2.1', '::ffff:999.0.2.1'],
    ['2001:DB8::1', '2001:db8::1'],
    ['', ''],
  ] as const)
    assert.equal(canonicalAddress(given), plain);
});

/** Every spelling of one address counts for one network: the network, then its addresses. */
const NETWORKS = `
  192.0.2.1  192.0.2.1 ::FFFF:192.0.2.1 ::ffff:c000:201 ::ffff:192.0.2.1%eth0
  192.0.2.1  0:0:0:0:0:ffff:c000:0201 0000:0000:0000:0000:0000:ffff:192.0.2.1
  192.0.2.2  192.0.2.2
  0:0:0:0::/64  :: ::1 0:0:0:0:0:0:0:0 ::ffff ::192.0.2.1 ::1%lo
  2001:db8:0:0::/64  2001:db8:: 2001:DB8::A 2001:db8::1:0:0:1 2001:0db8:0000:0:ffff:ffff:ffff:ffff
  2001:db8:0:1::/64  2001:db8:0:1:: 2001:db8:0:1::1 2001:0DB8:0:0001:0:0:0:0
  2001:db8:1:0::/64  2001:db8:1:: 2001:db8:1:0:1:1:1:1 2001:db8:1:0:1::
  1:2:3:4::/64  1:2:3:4:5:6:7:8 1:2:3:4:: 1:2:3:4:5:6:7:: 1:2:3:4::8 1:2:3:4:5:6:1.2.3.4
  0:2:3:4::/64  ::2:3:4:5:6:7:8 0:2:3:4::
  0:0:0:4::/64  ::4:5:6:7:8 0:0:0:4::
  fe80:0:0:0::/64  fe80::1 fe80::1%eth0 FE80::2%eth1 fe80::%
  1:0:3:0::/64  1:0:3:: 1:0:3:0::8 1::3:0:5:6:7:8
  unknown  unknown
  192.0.2  192.0.2
  1:2:3  1:2:3
`;

test('network: an IPv4 address itself, or the /64 of an IPv6 address, in any spelling', () => {
  for (const [network, ...addresses] of NETWORKS.trim().split('\n').map(wordsOf)) {
    for (const address of addresses) assert.equal(networkOf(address), network, address);
  }
  assert.equal(networkOf(''), '');
});

const BEARERS: ReadonlyArray<readonly [header: string, credential: string]> = [
  ['Bearer abc', 'abc'],
  ['BEARER    abc  ', 'abc'],
  ['Bearer session:0190c0de-1234', 'session:0190c0de-1234'],
  ['Bearer a+b/c-d_e~f.g==', 'a+b/c-d_e~f.g=='],
  ['bearer bearer', 'bearer'],
];
const NO_BEARERS = [
  ...['', 'Bearer', 'Bearer ', 'Bearerabc', ' Bearer abc', 'abc', 'Bearer abc def', 'XBearer abc'],
  ...['Bearer abc, Bearer def', 'Bearer\tabc', 'Bearer abc\t', 'Bearer abc\n', 'Bearer a\u00a0b'],
  ...['Basic YWJj', 'Digest bearer abc'],
];

test('a header that two readers could read differently is no bearer credential (RFC 6750)', () => {
  for (const [header, credential] of BEARERS) assert.equal(bearerOf(header), credential, header);
  for (const header of [undefined, ...NO_BEARERS]) assert.equal(bearerOf(header), null, header);
});
