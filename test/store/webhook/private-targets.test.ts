import assert from 'node:assert/strict';
import callbackDns from 'node:dns';
import dns from 'node:dns/promises';
import { syncBuiltinESMExports } from 'node:module';
import { createServer } from 'node:net';
import os from 'node:os';
import { after, test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import {
  isPrivate,
  ownAddresses,
  publicLookup,
} from '../../../src/platform/http/wire/private-address.ts';
import type { Service } from '../../../src/platform/process/service.ts';
import { start } from '../../../src/webhook/start.ts';
import { setTarget } from '../../../src/webhook/store/tokens.ts';
import { createForwardTarget } from '../../../src/webhook/targets/forward.ts';
import { ask, variables } from '../../support/gatehouse.ts';
import { listenOn } from '../../support/ports.ts';
import { addToken } from '../../support/senders.ts';
import { quiet } from '../../support/service-context.ts';
import { readConfig } from '../../support/settings.ts';
import { launchWebhook } from '../../support/webhook.ts';
import { stateOf, leasedEvent, untilStatus } from '../../support/webhook-store.ts';
import { wordsOf } from '../../support/words.ts';

const REFUSED = 'the target is a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it';

/** Listens on every address of this machine, IPv4 and IPv6, and counts connections. */
let heard = 0;
const neighbour = createServer((socket) => {
  heard += 1;
  socket.destroy();
});
const port = await listenOn({ after }, neighbour, '::');
const { base, database, databaseUrl, sql } = await launchWebhook({ WEBHOOK_RETRY_SCHEDULE: '1ms' });

/** @returns the error of an attempt, and how many connections it has made */
async function forwardTo(url: string) {
  const before = heard;
  const target = createForwardTarget({ url: new URL(url), secret: null, allowPrivate: false }, 1);
  const { error } = await target.deliver(leasedEvent(), new AbortController().signal);
  return [error, heard - before];
}

/**
 * First and last address of each special-purpose range of the IANA registries, and 168.63.129.16.
 */
const PRIVATE = wordsOf(`
  0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 127.0.0.0 127.255.255.255
  169.254.0.0 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.255 192.0.2.0 192.0.2.255
  192.31.196.0 192.31.196.255 192.52.193.0 192.52.193.255 192.88.99.0 192.88.99.255
  192.168.0.0 192.168.255.255 192.175.48.0 192.175.48.255 198.18.0.0 198.19.255.255
  198.51.100.0 198.51.100.255 203.0.113.0 203.0.113.255 224.0.0.0 239.255.255.255
  240.0.0.0 255.255.255.255 168.63.129.16
  :: ::1 fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
  fe80:: febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff fec0:: feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
  ff00:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
  64:ff9b:1:: 64:ff9b:1:ffff:ffff:ffff:ffff:ffff 2001:: 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff
  100:: 100::ffff:ffff:ffff:ffff 100:0:0:1:: 100:0:0:1:ffff:ffff:ffff:ffff
  2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff
  2620:4f:8000:: 2620:4f:8000:ffff:ffff:ffff:ffff:ffff 3fff:: 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff
  5f00:: 5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff
`);
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
`);
/** Other spellings, addresses with a zone, the metadata services of clouds, and no addresses. */
const MORE_PRIVATE = wordsOf(`
  ::FFFF:10.1.2.3 0:0:0:0:0:ffff:7f00:0001 ::ffff:0:0 fe80::1%eth0 fe80::1%2
  169.254.169.254 169.254.170.2 fd00:ec2::254 fd20:ce::254 100.100.100.200 192.0.0.192
  localhost 1.2.3 1.2.3.4.5 ::g
`);

test('private ranges are private from their first to their last address, and nothing else is', () => {
  for (const address of [...PRIVATE, ...MORE_PRIVATE, ''])
    assert.equal(isPrivate(address), true, address);
  for (const address of PUBLIC) assert.equal(isPrivate(address), false, address);
});

/** An IPv4 address as the last two groups of an IPv6 address. */
const pieces = (address: string) => {
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  return `${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
};
const isIpv4 = (address: string) => /^[0-9.]+$/.test(address);

test('every IPv6 form of an IPv4 address is as private as it; 6to4, Teredo and ISATAP always are', () => {
  const alike = ['::ffff:D', '::ffff:H', '64:ff9b::D', '64:ff9b::H'];
  const always = wordsOf(`
    ::D ::ffff:0:H 64:ff9b:1::H 2002:H:: 2002:H::1 2001:0:H::1 ::5efe:D ::0200:5EFE:D fe80::5efe:H
    fe80::200:5efe:D 2606:4700::5efe:H 2606:4700:1:2:0:5efe:D 2606:4700:1:2:0200:5efe:H
  `);
  const formsOf = (forms: readonly string[], addresses: readonly string[]) =>
    addresses
      .filter(isIpv4)
      .flatMap((one) => forms.map((form) => form.replace('D', one).replace('H', pieces(one))));
  for (const address of formsOf([...alike, ...always], PRIVATE))
    assert.equal(isPrivate(address), true, address);
  for (const address of formsOf(always, PUBLIC)) assert.equal(isPrivate(address), true, address);
  for (const address of formsOf(alike, PUBLIC)) assert.equal(isPrivate(address), false, address);
});

type Done = (error: null, addresses: ReadonlyArray<Readonly<{ address: string }>>) => void;
/**
 * Until the test ends, the addresses of this machine are these, and look-ups have these answers.
 * Each further one has an address of this machine, as of an attacker who changes the DNS reply.
 */
function pretend(t: TestContext, own: readonly string[], ...answers: string[][]): void {
  const of = (addresses: readonly string[]) =>
    addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
  const next = () => of(answers.shift() ?? ['127.0.0.1']);
  const mocks = [
    t.mock.method(os, 'networkInterfaces', () => ({ eth0: of(own) })),
    // Not at once, as no lookup ends.
    t.mock.method(dns, 'lookup', () => turn(next())),
    // What Node uses by itself.
    t.mock.method(callbackDns, 'lookup', (_host: string, _options: object, done: Done) =>
      done(null, next()),
    ),
  ];
  syncBuiltinESMExports();
  t.after(() => {
    for (const { mock } of mocks) mock.restore();
    syncBuiltinESMExports();
  });
}

test('an address of this machine is private, in any form, by its number or by a name', async (t) => {
  const own = ['8.8.8.8', '2606:4700::1111'];
  // Of a name, one private address is enough.
  pretend(t, own, ['9.9.9.9', '8.8.8.8']);
  for (const address of wordsOf(`
    8.8.8.8 ::ffff:8.8.8.8 ::ffff:808:808 64:ff9b::8.8.8.8 2606:4700::1111 2606:4700:0:0:0:0:0:1111
  `))
    assert.equal(isPrivate(address), true, address);
  for (const address of ['8.8.8.9', '::ffff:8.8.8.9', '2606:4700::1112'])
    assert.equal(isPrivate(address), false, address);
  for (const host of ['8.8.8.8', '[2606:4700::1111]', '[::ffff:8.8.8.8]', 'own.example'])
    assert.deepEqual(await forwardTo(`http://${host}:${port}/`), [REFUSED, 0], host);
  const none = () => {
    throw new Error('EAFNOSUPPORT');
  };
  const unknown = 'the addresses of this machine cannot be read';
  assert.throws(() => ownAddresses(none), { message: unknown });
  const { mock } = t.mock.method(os, 'networkInterfaces', none);
  syncBuiltinESMExports();
  const failed = [await forwardTo(`http://8.8.8.9:${port}/`), await forwardTo('http://other/')];
  mock.restore();
  assert.deepEqual(failed, new Array(2).fill([unknown, 0]));
});

test('a name without a private address is connected to at the addresses that were checked', async (t) => {
  const addresses = ['9.9.9.9', '2606:4700::1112'];
  pretend(t, [], addresses, addresses);
  const found = (options: object) =>
    new Promise((resolve) =>
      publicLookup('private')('public.example', options, (...answer) => resolve(answer)),
    );
  const first = { address: '9.9.9.9', family: 4 };
  const all = [first, { address: '2606:4700::1112', family: 6 }];
  assert.deepEqual(await found({ all: true }), [null, all]);
  assert.deepEqual(await found({}), [null, '9.9.9.9', 4]);
});

const SPELLINGS = wordsOf(`
  127.0.0.1 127.0.0.2 127.1 2130706433 0x7f.1 0x7f000001 0177.0.0.1 017700000001 127.0.0.1.
  ①②⑦.0.0.1 127%2e0.0.1 0.0.0.0 0 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 [::1]
  [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:0:0:1] [::127.0.0.1] [::ffff:10.0.0.1]
  [64:ff9b::a00:1] [2002:a00:1::] [fc00::1] [fd12:3456::1] [fe80::1] [::5efe:127.0.0.1]
  168.63.129.16 0xa83f8110 [ff02::1] localhost LOCALHOST a.localhost
`);

test('a private target is rejected before anything is sent, in any spelling', async () => {
  for (const host of SPELLINGS)
    for (const scheme of ['http', 'https'])
      assert.deepEqual(await forwardTo(`${scheme}://${host}:${port}/`), [REFUSED, 0], host);
});

test('the certificate of a private target is not looked at, by its number or by a name', async (t) => {
  const config = readConfig(['webhook'], 'serve', variables(databaseUrl)).webhook;
  const service: Service = await start(config ?? assert.fail(), quiet());
  t.after(() => service.storage?.database.close());
  pretend(t, ['8.8.8.8'], ['127.0.0.1']);
  for (const host of ['127.0.0.1', 'own.example']) {
    const { id } = await addToken(database, 'generic');
    const target = { url: `https://${host}:${port}/` };
    await setTarget(database, id, { target, keep_signature: false, secret: null });
  }
  const before = heard;
  assert.deepEqual(await service.observe?.('2126-10-28 23:59:00+00', '2126-10-29 00:01:00+00'), []);
  assert.equal(heard, before);
});

test('by default an event for a private target becomes a dead letter that says what to set', async () => {
  const { id, token } = await addToken(database, 'generic');
  // As if the name had another address when the target was set.
  const target = { url: `http://localhost:${port}/` };
  await setTarget(database, id, { target, keep_signature: false, secret: null });
  const before = heard;
  const body = { event: 'e', data: { page_id: 'p' } };
  const { json } = await ask('POST', base, { bearer: token, body });
  await untilStatus(sql, json.id, 'dead');
  assert.deepEqual((await stateOf(sql, json.id)).errors, [REFUSED, REFUSED]);
  assert.equal(heard, before);
});
