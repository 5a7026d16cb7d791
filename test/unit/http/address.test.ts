import assert from 'node:assert/strict';
import { BlockList } from 'node:net';
import { test } from 'node:test';
import { Expected } from '../../../src/platform/runtime/env.ts';
import {
  clientAddress,
  networkOf,
  parseNetworks,
  canonicalAddress,
} from '../../../src/platform/http/wire/address.ts';
import { wordsOf } from '../../support/words.ts';

// Addresses are of the ranges for documentation: RFC 5737 and RFC 3849.
function networks(text: string): BlockList {
  const parsed = parseNetworks(text);
  assert.ok(parsed instanceof BlockList, `rejected: ${JSON.stringify(parsed)}`);
  return parsed;
}

const PROXIES = '10.0.0.0/8, 2001:db8:ffff::/48,127.0.0.1';

const CASES: ReadonlyArray<
  readonly [why: string, socket: string, forwarded: string | undefined, client: string]
> = [
  ['a client that is not a trusted proxy', '192.0.2.1', '198.51.100.9', '192.0.2.1'],
  ['a client that names a trusted proxy', '192.0.2.1', '198.51.100.9, 10.0.0.1', '192.0.2.1'],
  ['a proxy names its client', '10.0.0.1', '192.0.2.1', '192.0.2.1'],
  [
    'entries to the left of the client are ignored',
    '10.0.0.1',
    '203.0.113.5, 192.0.2.1',
    '192.0.2.1',
  ],
  ['an invented proxy is ignored', '10.0.0.1', '203.0.113.5, 10.0.0.7, 192.0.2.1', '192.0.2.1'],
  ['a chain of proxies', '10.0.0.1', '203.0.113.5,192.0.2.1, 10.0.0.2 ,10.0.0.3', '192.0.2.1'],
  ['a chain across families', '127.0.0.1', '192.0.2.1, 2001:db8:ffff::5', '192.0.2.1'],
  ['an IPv6 client', '2001:db8:ffff::1', '2001:db8::1', '2001:db8::1'],
  ['an IPv6 client in capitals', '10.0.0.1', '2001:DB8::A', '2001:db8::a'],
  ['only proxies', '10.0.0.1', '10.0.0.3, 10.0.0.2', '10.0.0.3'],
  ['no header', '10.0.0.1', undefined, '10.0.0.1'],
  ['an empty header', '10.0.0.1', '', '10.0.0.1'],
  ['an empty last entry', '10.0.0.1', '192.0.2.1,', '10.0.0.1'],
  ['garbage', '10.0.0.1', 'unknown', '10.0.0.1'],
  [
    'garbage ends the search at the last certain address',
    '10.0.0.1',
    '192.0.2.1, garbage, 10.0.0.2',
    '10.0.0.2',
  ],
  ['an address with a port', '10.0.0.1', '192.0.2.1:4711', '192.0.2.1'],
  ['an IPv6 address in brackets', '10.0.0.1', '[2001:DB8::1]', '2001:db8::1'],
  ['an IPv6 address with a port', '10.0.0.1', '[2001:db8::1]:443', '2001:db8::1'],
  ['a mapped address in brackets with a port', '10.0.0.1', '[::ffff:192.0.2.1]:1', '192.0.2.1'],
  ['a chain with ports', '10.0.0.1', '203.0.113.5:1, 192.0.2.1:4711, 10.0.0.2:80', '192.0.2.1'],
  ['an address with garbage for a port', '10.0.0.1', '192.0.2.1:http', '10.0.0.1'],
  ['an address with an empty port', '10.0.0.1', '192.0.2.1:', '10.0.0.1'],
  ['an address with a port of six digits', '10.0.0.1', '192.0.2.1:123456', '10.0.0.1'],
  ['two addresses in brackets', '10.0.0.1', '[2001:db8::1][2001:db8::2]', '10.0.0.1'],
  ['a bracket that is not closed', '10.0.0.1', '[2001:db8::1', '10.0.0.1'],
  ['text after the brackets', '10.0.0.1', '[2001:db8::1]x', '10.0.0.1'],
  ['an address out of range', '10.0.0.1', '192.0.2.256', '10.0.0.1'],
  ['a short form of IPv4', '10.0.0.1', '192.0.2', '10.0.0.1'],
  ['markup', '10.0.0.1', '<script>alert(1)</script>', '10.0.0.1'],
  ['a mapped socket address', '::ffff:192.0.2.1', undefined, '192.0.2.1'],
  ['a mapped proxy', '::ffff:10.0.0.1', '192.0.2.1', '192.0.2.1'],
  ['a mapped client', '10.0.0.1', '::FFFF:192.0.2.1', '192.0.2.1'],
  ['a mapped proxy in the chain', '10.0.0.1', '192.0.2.1, ::ffff:10.0.0.2', '192.0.2.1'],
  ['a mapped client in hexadecimal', '10.0.0.1', '::ffff:c000:201', '192.0.2.1'],
  ['a mapped client written out', '10.0.0.1', '0:0:0:0:0:ffff:192.0.2.1', '192.0.2.1'],
  ['a link-local socket with its zone', 'fe80::1%eth0', '192.0.2.1', 'fe80::1%eth0'],
  ['a zone in the header', '10.0.0.1', 'fe80::1%eth0', 'fe80::1%eth0'],
  ['a socket that is already gone', '', '192.0.2.1', ''],
];

for (const [why, socket, forwarded, client] of CASES) {
  test(`the client's address: ${why}`, () => {
    assert.equal(clientAddress(socket, forwarded, networks(PROXIES)), client);
  });
}

test('without trusted proxies, X-Forwarded-For is ignored', () => {
  for (const socket of ['127.0.0.1', '10.0.0.1', '::1'])
    assert.equal(clientAddress(socket, '192.0.2.1', networks('')), socket);
});

test('X-Forwarded-For with thousands of entries: the right one is found', () => {
  const entries = Array.from({ length: 4_000 }, () => '10.0.0.1');
  assert.equal(
    clientAddress('10.0.0.1', ['192.0.2.1', ...entries].join(','), networks(PROXIES)),
    '192.0.2.1',
  );
});

test('networks are addresses and CIDR ranges', () => {
  const list = networks(' 192.0.2.0/24 ,2001:db8::/32,, 198.51.100.7,::1 ');
  for (const [address, family, inside] of [
    ['192.0.2.255', 'ipv4', true],
    ['192.0.3.0', 'ipv4', false],
    ['198.51.100.7', 'ipv4', true],
    ['198.51.100.8', 'ipv4', false],
    ['2001:db8:1::', 'ipv6', true],
    ['::1', 'ipv6', true],
    ['::2', 'ipv6', false],
  ] as const) {
    assert.equal(list.check(address, family), inside, address);
  }
  assert.equal(networks('0.0.0.0/0').check('203.0.113.1', 'ipv4'), true);
});

test('a list with an invalid network is rejected', () => {
  for (const wrong of wordsOf(`
    10.0.0.0/33 ::/129 10.0.0.0/ 10.0.0.0/-1 10.0.0.0/8/8 10.0.0/8 proxy.example 10.0.0.0/1e1 /8
  `)) {
    assert.throws(() => parseNetworks(`127.0.0.1,${wrong}`), Expected, wrong);
  }
});

test('an address has one canonical spelling', () => {
  for (const [given, plain] of [
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:192.0.2.1', '192.0.2.1'],
    ['::ffff:999.0.2.1', '::ffff:999.0.2.1'],
    ['2001:DB8::1', '2001:db8::1'],
    ['', ''],
  ] as const) {
    assert.equal(canonicalAddress(given), plain);
  }
});

/** Every spelling of one address counts for one network: the network, then its addresses. */
const NETWORKS = `
  192.0.2.1  192.0.2.1 ::ffff:192.0.2.1 ::FFFF:192.0.2.1 ::ffff:c000:201 ::ffff:192.0.2.1%eth0
  192.0.2.1  0:0:0:0:0:ffff:c000:0201 0000:0000:0000:0000:0000:ffff:192.0.2.1
  192.0.2.2  192.0.2.2
  0:0:0:0::/64  :: ::1 0:: 0:0:0:0:0:0:0:0 ::ffff ::192.0.2.1 ::1%lo
  2001:db8:0:0::/64  2001:db8:: 2001:db8::1 2001:DB8::A 2001:db8::1:0:0:1 2001:db8::192.0.2.1
  2001:db8:0:0::/64  2001:0db8:0000:0000:ffff:ffff:ffff:ffff
  2001:db8:0:1::/64  2001:db8:0:1:: 2001:db8:0:1::1 2001:db8:0:1:8000:: 2001:0DB8:0:0001:0:0:0:0
  2001:db8:1:0::/64  2001:db8:1:: 2001:db8:1::1 2001:db8:1:0:1:1:1:1 2001:db8:1:0:1::
  1:2:3:4::/64  1:2:3:4:5:6:7:8 1:2:3:4:: 1:2:3:4:5:6:7:: 1:2:3:4::8 1:2:3:4:5:6:1.2.3.4
  0:2:3:4::/64  ::2:3:4:5:6:7:8 0:2:3:4::
  0:0:3:4::/64  ::3:4:5:6:7:8
  0:0:0:4::/64  ::4:5:6:7:8 0:0:0:4::
  fe80:0:0:0::/64  fe80::1 fe80::1%eth0 fe80::1%1 FE80::2%eth1 fe80::%
`;

test('network: an IPv4 address itself, or the /64 of an IPv6 address, in any spelling', () => {
  for (const [network, ...addresses] of NETWORKS.trim().split('\n').map(wordsOf)) {
    for (const address of addresses) assert.equal(networkOf(address), network, address);
  }
});

/** The spellings of an address of eight groups that a program might choose. */
function spellings(groups: readonly number[]): string[] {
  const short = groups.map((group) => group.toString(16));
  const long = short.map((group) => group.padStart(4, '0'));
  const all = [short.join(':'), long.join(':'), long.join(':').toUpperCase()];
  const [high = 0, low = 0] = groups.slice(6);
  all.push(
    [...short.slice(0, 6), [high >> 8, high & 255, low >> 8, low & 255].join('.')].join(':'),
  );
  for (let start = 0; start < 8; start += 1) {
    for (
      let end = start + 1;
      end <= 8 && groups.slice(start, end).every((group) => group === 0);
      end += 1
    ) {
      all.push(`${short.slice(0, start).join(':')}::${long.slice(end).join(':')}`);
    }
  }
  return all;
}

test('network of an IPv6 address: the first four groups, whichever groups are zero', () => {
  for (let mask = 0; mask < 256; mask += 1) {
    // The first group is never zero: such an address might be an IPv4 address in disguise.
    const groups = Array.from({ length: 8 }, (_, index) =>
      index > 0 && mask & (1 << index) ? 0 : 0xa0 + index,
    );
    const network = `${groups
      .slice(0, 4)
      .map((group) => group.toString(16))
      .join(':')}::/64`;
    for (const spelling of spellings(groups)) {
      assert.equal(networkOf(spelling), network, spelling);
      assert.equal(networkOf(`${spelling}%eth0`), network, spelling);
    }
  }
});

test('network of an invalid address: the text itself', () => {
  assert.deepEqual(['', 'unknown', '192.0.2', '1:2:3'].map(networkOf), [
    '',
    'unknown',
    '192.0.2',
    '1:2:3',
  ]);
});
