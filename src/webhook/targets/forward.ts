import { createHmac } from 'node:crypto';
import { lookup } from 'node:dns';
import http, { type ClientRequest, type IncomingMessage } from 'node:http';
import https from 'node:https';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import { urlToHttpOptions } from 'node:url';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { describeError, Unavailable } from '../../platform/runtime/errors.ts';
import { watchReuse } from '../../platform/runtime/reused-connection.ts';
import type { Deliverer, LeasedEvent, Result } from '../model.ts';
import { standardKey } from '../signatures.ts';
import { isKeepable } from '../header-names.ts';
import { describeFailure, describeStatus, stageOf } from '../failures.ts';

/**
 * The special-purpose networks of IANA (RFC 6890), multicast, site-local addresses, and
 * 168.63.129.16, at which Azure serves each virtual machine (SSRF, ASVS 1.3.6). The metadata
 * services of other clouds are in these networks.
 */
const PRIVATE_NETWORKS = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/3',
  '168.63.129.16/32',
  '::/96',
  '::ffff:0:0:0/96',
  '64:ff9b:1::/48',
  '100::/64',
  '100:0:0:1::/64',
  '2001::/23',
  '2001:db8::/32',
  '2002::/16',
  '2620:4f:8000::/48',
  '3fff::/20',
  '5f00::/16',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
];
function listOf(networks: readonly string[]) {
  const list = new BlockList();
  for (const [address = '', bits] of networks.map((network) => network.split('/'))) {
    const family = isIP(address);
    list.addSubnet(address, Number(bits), family === 4 ? 'ipv4' : 'ipv6');
    // The same through a NAT64 gateway (RFC 6052).
    if (family === 4) list.addSubnet(`64:ff9b::${address}`, 96 + Number(bits), 'ipv6');
  }
  return list;
}
const PRIVATE = listOf(PRIVATE_NETWORKS);

/**
 * The addresses of this machine, public ones included: what listens there may rely on its firewall,
 * which does not see a connection from within. Read for each connection, because they change.
 * @throws Unavailable without the right to read them (AF_NETLINK on Linux)
 */
export function ownAddresses(read = networkInterfaces) {
  let interfaces: ReturnType<typeof networkInterfaces>;
  try {
    interfaces = read();
  } catch {
    throw new Unavailable('the addresses of this machine cannot be read');
  }
  const addresses = Object.values(interfaces).flatMap((all = []) => all);
  return listOf(
    addresses.map(({ address, family }) => `${address}/${family === 'IPv4' ? 32 : 128}`),
  );
}

/**
 * The end of an ISATAP address, which contains an IPv4 address under any prefix (RFC 5214, 6.1).
 */
const ISATAP = /:(0|200|):5efe:([0-9a-f]+:[0-9a-f]+|:)\]$/;

/**
 * An IPv6 address that contains a private IPv4 address is private, too. So is text that is not an
 * address.
 * @param own the addresses of this machine
 */
export function isPrivate(address: string, own = ownAddresses()) {
  const version = isIP(address);
  if (version === 0) return true;
  const family = version === 4 ? 'ipv4' : 'ipv6';
  if (PRIVATE.check(address, family) || own.check(address, family)) return true;
  if (family === 'ipv4') return false;
  const url = `http://[${address}]`;
  // In its canonical form. An address with a zone has none, and is link-local.
  return !URL.canParse(url) || ISATAP.test(new URL(url).hostname);
}

/** The connection may use any of the addresses, so one private address is enough. */
export function includesPrivate(addresses: ReadonlyArray<Readonly<{ address: string }>>) {
  const own = ownAddresses();
  return addresses.some(({ address }) => isPrivate(address, own));
}

/**
 * Resolves a name, and fails if any of its addresses is private. The connection uses these
 * addresses, so a later DNS reply cannot change them (DNS rebinding).
 */
const lookupPublic: LookupFunction = (host, options, done) => {
  lookup(host, { ...options, all: true }, (error, addresses) => {
    const first = addresses?.[0];
    if (error || !first) return done(error ?? new Error('no address'), '');
    try {
      if (includesPrivate(addresses)) return done(new Unavailable(PRIVATE_TARGET), '');
    } catch (unreadable) {
      return done(new Unavailable(describeError(unreadable).error), '');
    }
    if (options.all) return done(null, addresses);
    return done(null, first.address, first.family);
  });
};

/** For an address, Node does not call `lookup`. `localhost` is this machine (RFC 6761, 6.3). */
export function hasPrivateAddress({ hostname }: URL) {
  if (/(^|\.)localhost\.?$/.test(hostname)) return true;
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(host) !== 0 && isPrivate(host);
}

export const PRIVATE_TARGET =
  'the target is a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on to allow it';

type Destination = Readonly<{ url: URL; secret: string | null; allowPrivate: boolean }>;

/**
 * POSTs the raw body. Any 2xx is success. Redirects are not followed. Of the reply's body, the
 * beginning is kept.
 * @param given `secret` signs the requests by Standard Webhooks; null for no signature
 */
export function createForwardTarget(
  { url, secret, allowPrivate }: Destination,
  concurrency: number,
): Deliverer {
  const { Agent, request } = url.protocol === 'https:' ? https : http;
  const agent = new Agent({ keepAlive: true, maxSockets: concurrency });
  const fixed = {
    ...urlToHttpOptions(url),
    method: 'POST',
    agent,
    lookup: allowPrivate ? undefined : lookupPublic,
  };
  const key = secret === null ? null : standardKey(secret);
  return {
    async deliver(event, signal) {
      try {
        if (!allowPrivate && hasPrivateAddress(url)) return { error: PRIVATE_TARGET };
        const given = { ...fixed, headers: forwardHeaders(event, key) };
        const result = await send(request(given), event.body, signal);
        if (result) return result;
        // On a connection of its own, which cannot have been closed before.
        const repeated = request({ ...given, agent: false });
        return (await send(repeated, event.body, signal)) ?? { error: describeFailure() };
      } catch (error) {
        return { error: describeFailure(error) };
      }
    },
    close: async () => agent.destroy(),
  };
}

/** How much of a reply is kept. */
const KEPT_BYTES = 1_024;
/** How much of a reply is read, and for how long, so that the connection can be reused. */
const MAX_BYTES = 16_384;
const BODY_MS = 1_000;

/**
 * @returns once the reply has ended, or enough of it is read; null if the target had closed the
 * kept connection before: this is no attempt
 */
function send(request: ClientRequest, body: Buffer, signal: AbortSignal) {
  return new Promise<Result | null>((resolve) => {
    const wasClosed = watchReuse(request);
    let isAnswered = false;
    let unfinished: string | undefined;
    // Not the option `signal`, which costs processor time in each request.
    signal.addEventListener('abort', () => {
      unfinished = stageOf(request);
      request.destroy();
    });
    request.once('response', (response) => {
      isAnswered = true;
      const parts: Buffer[] = [];
      let size = 0;
      const answer = () => resolve(resultOf(response, Buffer.concat(parts)));
      // A long or slow reply closes the connection. The status is known already, and decides.
      const timer = setTimeout(() => response.destroy(), BODY_MS);
      response.on('error', () => {});
      response.once('close', () => {
        clearTimeout(timer);
        answer();
      });
      response.on('data', (chunk: Buffer) => {
        if (size < KEPT_BYTES) parts.push(chunk);
        size += chunk.length;
        if (size >= KEPT_BYTES) answer();
        if (size > MAX_BYTES) response.destroy();
      });
    });
    request.once('upgrade', (response, socket) => {
      socket.destroy();
      resolve(resultOf(response, Buffer.alloc(0)));
    });
    const fail = (error?: Error) => {
      if (isAnswered) return;
      if (unfinished !== undefined) return resolve({ error: unfinished, unfinished });
      if (wasClosed()) return resolve(null);
      resolve({ error: describeFailure(error) });
    };
    request.once('error', fail).once('close', fail);
    request.end(body);
  });
}

/** Stock servers accept a header of 8 KiB, and the encoded name may have nine. */
const MAX_NAME_BYTES = 1_024;

/** The name as far as it fits, in whole characters. The body or a kept header has all of it. */
function encodedName(event: string) {
  let encoded = '';
  for (const character of event) {
    const next = encodeURIComponent(character);
    if (encoded.length + next.length > MAX_NAME_BYTES) break;
    encoded += next;
  }
  return encoded;
}

/**
 * The sender's headers that were kept with the event, and ours, which replace them except for the
 * content type and the user agent.
 * @param key signs by Standard Webhooks; null for no signature
 */
export function forwardHeaders(
  {
    id,
    event,
    headers,
    body,
    attempt,
  }: Pick<LeasedEvent, 'id' | 'event' | 'headers' | 'body' | 'attempt'>,
  key: Buffer | null,
) {
  const time = String(Math.floor(Date.now() / 1000));
  const sent = Object.entries(headers).filter(([name]) => isKeepable(name));
  const named = {
    'content-type': 'application/json',
    'user-agent': 'gatehouse-webhook',
    ...Object.fromEntries(sent),
    'content-length': String(body.length),
    'gatehouse-event': encodedName(event),
    'gatehouse-attempt': String(attempt),
  };
  // The signature of the sender covers its own id and time.
  if (key === null && headers['webhook-signature'] !== undefined) return named;
  const own = { ...named, 'webhook-id': id, 'webhook-timestamp': time };
  if (key === null) return own;
  const mac = createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest('base64');
  return { ...own, 'webhook-signature': `v1,${mac}` };
}

function resultOf({ statusCode = 0, headers }: IncomingMessage, body: Buffer): Result {
  const answered = { answer_status: statusCode, answer: body.toString('utf8', 0, KEPT_BYTES) };
  if (statusCode >= 200 && statusCode < 300) return { ...answered, error: null };
  return {
    ...answered,
    error: describeStatus(statusCode),
    retryAfter: secondsOf(headers['retry-after']),
  };
}

/**
 * Seconds or a date (RFC 9110, 10.2.3), of any length and at most a day.
 * @returns null for neither, and for a time that is over
 */
function secondsOf(retryAfter = '') {
  const isSeconds = /^[0-9]+$/.test(retryAfter);
  const seconds = isSeconds ? Number(retryAfter) : (Date.parse(retryAfter) - Date.now()) / 1000;
  return seconds > 0 ? Math.min(seconds, DAY_SECONDS) : null;
}
