import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { after, test } from 'node:test';
import { makeTemporary, removeTemporary } from '../../../scripts/temporary.ts';
import {
  includesPrivate,
  isPrivate,
  ownAddresses,
} from '../../../src/platform/http/wire/private-address.ts';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { createDatabase } from '../../support/database.ts';
import { ask, startGatehouse } from '../../support/gatehouse.ts';
import { addToken, openWebhook } from '../../support/senders.ts';
import { setTarget } from '../../../src/webhook/store/tokens.ts';
import { startRecorder } from '../../support/recorder.ts';
import { deliverOnce, stateOf, leasedEvent, untilStatus } from '../../support/webhook-store.ts';
import { wordsOf } from '../../support/words.ts';
import { listenOn } from '../../support/ports.ts';

const REFUSED = {
  error: 'the target is a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it',
};
const never = new AbortController().signal;
const forwardTo = (url: string, allowPrivate = false) =>
  createForwardTarget({ url: new URL(url), secret: null, allowPrivate }, 1);

/** Listens on every address of this machine, IPv4 and IPv6, and must get no connection. */
let heard = 0;
const neighbour = createServer((socket) => {
  heard += 1;
  socket.destroy();
});
const port = await listenOn({ after }, neighbour, '::');

/** First and last address of each special-purpose range of the IANA registries. */
const PRIVATE = [
  ['0.0.0.0', '0.255.255.255'],
  ['10.0.0.0', '10.255.255.255'],
  ['100.64.0.0', '100.127.255.255'],
  ['127.0.0.0', '127.255.255.255'],
  ['169.254.0.0', '169.254.255.255'],
  ['172.16.0.0', '172.31.255.255'],
  ['192.0.0.0', '192.0.0.255'],
  ['192.0.2.0', '192.0.2.255'],
  ['192.31.196.0', '192.31.196.255'],
  ['192.52.193.0', '192.52.193.255'],
  ['192.88.99.0', '192.88.99.255'],
  ['192.168.0.0', '192.168.255.255'],
  ['192.175.48.0', '192.175.48.255'],
  ['198.18.0.0', '198.19.255.255'],
  ['198.51.100.0', '198.51.100.255'],
  ['203.0.113.0', '203.0.113.255'],
  ['224.0.0.0', '239.255.255.255'],
  ['240.0.0.0', '255.255.255.255'],
  ['::', '::1'],
  ['fc00::', 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['fe80::', 'febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['fec0::', 'feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['ff00::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['64:ff9b:1::', '64:ff9b:1:ffff:ffff:ffff:ffff:ffff'],
  ['2001::', '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['100::', '100::ffff:ffff:ffff:ffff'],
  ['100:0:0:1::', '100:0:0:1:ffff:ffff:ffff:ffff'],
  ['2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['2620:4f:8000::', '2620:4f:8000:ffff:ffff:ffff:ffff:ffff'],
  ['3fff::', '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['5f00::', '5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['168.63.129.16', '168.63.129.16'],
] as const;
/** The addresses next to these ranges, and others of the public network. */
const PUBLIC = wordsOf(`
  1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
  169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0
  192.31.195.255 192.31.197.0 192.52.192.255 192.52.194.0 192.88.98.255 192.88.100.0 192.167.255.255
  192.169.0.0 192.175.47.255 192.175.49.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0
  203.0.112.255 203.0.114.0 223.255.255.255 8.8.8.8 168.63.129.15 168.63.129.17 ff:ffff::
  100:0:0:2:: 2001:200:: 2001:db7:ffff:: 2001:db9:: 2620:4f:7fff:: 2620:4f:8001:: 3ffe:ffff::
  3fff:1000:: 5eff:ffff::1 5f01:: 2606:4700::1:5efe:1:2 2606:4700::200:5eff:1:2
  2606:4700:0:5efe:1:2:3:4 2606:4700::5efe fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe00::
  fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff 64:ff9b:2:: 2001:4860:4860::8888 2606:4700::1111
  ::ffff:8.8.8.8
`);

test('private ranges are private from their first to their last address, and nothing else is', () => {
  for (const address of PRIVATE.flat()) assert.equal(isPrivate(address), true, address);
  for (const address of PUBLIC) assert.equal(isPrivate(address), false, address);
  for (const nothing of ['', 'localhost', '1.2.3', '1.2.3.4.5', '::g'])
    assert.equal(isPrivate(nothing), true, `"${nothing}" is no address, and nothing to connect to`);
});

test('a name with one private address among public ones is private', () => {
  const named = (...addresses: string[]) => addresses.map((address) => ({ address }));
  assert.equal(includesPrivate(named('8.8.8.8', '10.0.0.1')), true);
  assert.equal(includesPrivate(named('2606:4700::1111', '8.8.8.8', '::1')), true);
  assert.equal(includesPrivate(named('8.8.8.8', '2606:4700::1111')), false);
});

test('an IPv6 address that contains a private IPv4 address is private, in any spelling', () => {
  for (const address of wordsOf(`
    ::ffff:127.0.0.1 ::ffff:7f00:1 ::FFFF:10.1.2.3 ::ffff:169.254.169.254 ::ffff:c0a8:0101
    0:0:0:0:0:ffff:7f00:0001 ::ffff:0:0 ::127.0.0.1 ::7f00:1
  `)) {
    assert.equal(isPrivate(address), true, address);
  }
});

test('the metadata services of the clouds are private', () => {
  // AWS, Google, Azure and DigitalOcean; containers of AWS; AWS and Google by IPv6; Alibaba;
  // Oracle; Azure's own.
  for (const address of wordsOf(`
    169.254.169.254 169.254.170.2 fd00:ec2::254 fd20:ce::254 100.100.100.200 192.0.0.192
    168.63.129.16
  `))
    assert.equal(isPrivate(address), true, address);
  for (const zone of ['fe80::1%eth0', 'fe80::1%2']) assert.equal(isPrivate(zone), true, zone);
});

test('an address that NAT64 or 6to4 maps to a private IPv4 address is private', () => {
  for (const address of wordsOf(`
    64:ff9b::127.0.0.1 64:ff9b::a00:1 64:ff9b::169.254.169.254 2002:7f00:1:: 2002:a00:1::1
    2002:c0a8:101:: ::ffff:0:127.0.0.1
  `))
    assert.equal(isPrivate(address), true, address);
  assert.equal(
    isPrivate('64:ff9b::808:808'),
    false,
    'a network without IPv4 reaches the public one so',
  );
});

/** An IPv4 address as the last two groups of an IPv6 address. */
const pieces = (address: string) => {
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
};
const IPV4 = {
  private: PRIVATE.flat().filter((address) => address.includes('.')),
  public: PUBLIC.filter((address) => /^[0-9.]+$/.test(address)),
};

test('every IPv6 form of an IPv4 address is as private as it; 6to4, Teredo and ISATAP always are', () => {
  for (const address of IPV4.private) {
    const dotted = address;
    const hex = pieces(address);
    for (const outer of [
      `::ffff:${dotted}`,
      `::ffff:${hex}`,
      `::${dotted}`,
      `::ffff:0:${hex}`,
      `64:ff9b::${dotted}`,
      `64:ff9b::${hex}`,
      `64:ff9b:1::${hex}`,
      `2002:${hex}::`,
      `2002:${hex}::1`,
      `2001:0:${hex}::1`,
      `::5efe:${dotted}`,
      `::0200:5EFE:${dotted}`,
      `fe80::5efe:${hex}`,
      `fe80::200:5efe:${dotted}`,
      `2606:4700::5efe:${hex}`,
      `2606:4700:1:2:0:5efe:${dotted}`,
      `2606:4700:1:2:0200:5efe:${hex}`,
    ]) {
      assert.equal(isPrivate(outer), true, outer);
    }
  }
  for (const address of IPV4.public) {
    for (const outer of [`::ffff:${address}`, `::ffff:${pieces(address)}`, `64:ff9b::${address}`])
      assert.equal(isPrivate(outer), false, outer);
    for (const outer of [
      `2606:4700:1:2:0:5efe:${address}`,
      `2002:${pieces(address)}::1`,
      `2001:0:${pieces(address)}::1`,
      `::${address}`,
    ])
      assert.equal(isPrivate(outer), true, outer);
  }
});

test('an address of this machine is private, in any form, as long as it has it', () => {
  const [first = []] = Object.values(networkInterfaces());
  const [template] = first;
  assert.ok(template);
  const own = ownAddresses(() => ({
    eth0: [
      { ...template, family: 'IPv4', address: '8.8.8.8' },
      { ...template, family: 'IPv6', address: '2606:4700::1111', scopeid: 0 },
    ],
  }));
  for (const address of wordsOf(`
    8.8.8.8 ::ffff:8.8.8.8 ::ffff:808:808 64:ff9b::8.8.8.8 2606:4700::1111 2606:4700:0:0:0:0:0:1111
    0.0.0.0 ::
  `))
    assert.equal(isPrivate(address, own), true, address);
  for (const address of ['8.8.8.9', '::ffff:8.8.8.9', '2606:4700::1112'])
    assert.equal(isPrivate(address, own), false, address);
  assert.equal(isPrivate('8.8.8.8'), false, 'which this machine does not have');
  const none = () => {
    throw new Error('EAFNOSUPPORT');
  };
  assert.throws(() => ownAddresses(none), /addresses of this machine cannot be read/);
});

/** Adds addresses to a machine that forwards to them. Prints how many connections it got. */
const OWN_MACHINE = `
  const { execFileSync } = require('node:child_process');
  const { once } = require('node:events');
  const { createServer } = require('node:net');
  const [, module] = process.argv;
  import(module).then(async ({ createForwardTarget }) => {
    let heard = 0;
    const server = createServer((socket) => { heard += 1; socket.destroy(); }).listen(0, '::');
    await once(server, 'listening');
    const { port } = server.address();
    const event = { id: 'a', event: 'a', headers: {}, body: Buffer.from('{}'), attempt: 1 };
    const outcomes = [];
    const forward = async (host, allowPrivate) => {
      const url = new URL('http://' + host + ':' + port);
      const target = createForwardTarget({ url, secret: null, allowPrivate }, 1);
      outcomes.push((await target.deliver(event, new AbortController().signal)).error);
    };
    for (const address of ['8.8.8.8/32', '2606:4700::1111/128'])
      execFileSync('ip', ['address', 'add', address, 'dev', 'lo', 'nodad']);
    for (const host of ['8.8.8.8', '[2606:4700::1111]', '[::ffff:8.8.8.8]', 'own.example'])
      await forward(host, false);
    const denied = heard;
    await forward('own.example', true);
    console.log(JSON.stringify({ outcomes, denied, heard }));
    server.close();
  });
`;

test('nothing is sent to an address of this machine, by its number or by a name', (t) => {
  const script = 'ip link set lo up && mount --bind "$1" /etc/hosts && exec "$2" -e "$3" "$4"';
  const module = new URL(
    `../../../src/webhook/targets/forward${extname(import.meta.url)}`,
    import.meta.url,
  );
  const directory = makeTemporary(tmpdir(), 'gatehouse-own');
  t.after(() => removeTemporary(directory));
  const hosts = join(directory, 'hosts');
  writeFileSync(hosts, '8.8.8.8 own.example\n');
  const words = ['--user', '--map-root-user', '--net', '--mount', 'sh', '-c', script, 'sh'];
  const given = [...words, hosts, process.execPath, OWN_MACHINE, module.href];
  const namespaces = ['--user', '--map-root-user', '--net', '--mount', 'ip', 'address'];
  if (spawnSync('unshare', namespaces).status !== 0)
    return t.skip('needs unshare, ip, and user namespaces');
  const { stdout, stderr } = spawnSync('unshare', given, { encoding: 'utf8' });
  assert.notEqual(stdout, '', stderr);
  const { outcomes, denied, heard } = JSON.parse(stdout);
  assert.deepEqual(outcomes.slice(0, 4), new Array(4).fill(REFUSED.error));
  assert.deepEqual([denied, heard], [0, 1]);
});

const SPELLINGS = wordsOf(`
  127.0.0.1 127.0.0.2 127.1 2130706433 0x7f.1 0x7f000001 0177.0.0.1 017700000001 127.0.0.1.
  ①②⑦.0.0.1 127%2e0.0.1 0.0.0.0 0 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 [::1]
  [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:0:0:1] [::127.0.0.1] [::ffff:10.0.0.1]
  [64:ff9b::a00:1] [2002:a00:1::] [fc00::1] [fd12:3456::1] [fe80::1] [::5efe:127.0.0.1]
  168.63.129.16 0xa83f8110 [ff02::1] localhost LOCALHOST
`);

test('a private target is rejected before anything is sent, in any spelling and by any name', async () => {
  for (const host of SPELLINGS)
    assert.deepEqual(
      await forwardTo(`http://${host}:${port}/`).deliver(leasedEvent(), never),
      REFUSED,
      host,
    );
  for (const host of ['127.0.0.1', '[::1]', 'localhost'])
    assert.deepEqual(
      await forwardTo(`https://${host}:${port}/`).deliver(leasedEvent(), never),
      REFUSED,
      `https, ${host}`,
    );
  assert.equal(heard, 0);
});

test('WEBHOOK_FORWARD_ALLOW_PRIVATE=on allows private targets', async (t) => {
  const recorder = await startRecorder(t);
  recorder.answer((response) => response.end());
  for (const host of ['127.0.0.1', '0x7f.1', 'localhost']) {
    assert.equal(
      await deliverOnce(forwardTo(`http://${host}:${recorder.port}/`, true), leasedEvent()),
      null,
      host,
    );
  }
  assert.equal(recorder.received.length, 3);
});

test('by default an event for a private target becomes a dead letter that says what to set', async (t) => {
  const { url, sql } = await createDatabase(t);
  const gatehouse = await startGatehouse(t, ['webhook'], url, { WEBHOOK_RETRY_SCHEDULE: '1ms' });
  const database = openWebhook(t, url);
  const { id, token } = await addToken(database, 'generic');
  // As if the name had another address when the target was set.
  await setTarget(database, id, {
    target: { url: `http://localhost:${port}/` },
    keep_signature: false,
    secret: null,
  });
  const { json } = await ask('POST', `${gatehouse.url.webhook}/webhook`, {
    bearer: token,
    body: { event: 'e', data: { page_id: 'p' } },
  });
  await untilStatus(sql, json.id, 'dead');
  assert.deepEqual((await stateOf(sql, json.id)).errors, [REFUSED.error, REFUSED.error]);
  assert.equal(heard, 0);
});
