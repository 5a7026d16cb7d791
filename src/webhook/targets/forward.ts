import { createHmac } from 'node:crypto';
import { lookup } from 'node:dns';
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { BlockList, isIP, type LookupFunction } from 'node:net';
import { SCHEMES } from '../signatures.ts';
import type { Task } from '../store/work.ts';
import type { Delivery, Failed } from '../worker.ts';

export interface ForwardOptions {
  readonly url: URL;
  /** Signs what is forwarded, by Standard Webhooks; null for no signature. */
  readonly secret: string | null;
  readonly allowPrivate: boolean;
  readonly concurrency: number;
}

/** Addresses that only this host or its network can reach: an event must not become a request to what trusts its neighbours. */
const PRIVATE = new BlockList();
for (const [network, bits] of [['0.0.0.0', 8], ['10.0.0.0', 8], ['100.64.0.0', 10], ['127.0.0.0', 8], ['169.254.0.0', 16], ['172.16.0.0', 12], ['192.0.0.0', 24], ['192.168.0.0', 16], ['198.18.0.0', 15], ['224.0.0.0', 3]] as const) {
  PRIVATE.addSubnet(network, bits, 'ipv4');
  // By way of a NAT64 gateway (RFC 6052).
  PRIVATE.addSubnet(`64:ff9b::${network}`, 96 + bits, 'ipv6');
}
for (const [network, bits] of [['::', 96], ['::ffff:0:0:0', 96], ['64:ff9b:1::', 48], ['2001::', 32], ['2002::', 16], ['fc00::', 7], ['fe80::', 10], ['fec0::', 10], ['ff00::', 8]] as const) PRIVATE.addSubnet(network, bits, 'ipv6');

/** Addresses with an IPv4 one inside are judged by that too. */
export function isPrivate(address: string): boolean {
  const family = isIP(address);
  return family === 0 || PRIVATE.check(address, family === 4 ? 'ipv4' : 'ipv6');
}

/** Looks a name up and refuses it if any of its addresses is private. The connection goes to what was looked up, so no second look-up can say otherwise. */
const lookupPublic: LookupFunction = (host, options, done) => {
  lookup(host, { ...options, all: true }, (error, addresses) => {
    const first = addresses?.[0];
    if (error || !first) return done(error ?? new Error('no address'), '');
    if (addresses.some(({ address }) => isPrivate(address))) return done(Object.assign(new Error('private'), { code: 'PRIVATE_ADDRESS' }), '');
    if (options.all) return done(null, addresses);
    return done(null, first.address, first.family);
  });
};

/** Whether a URL names a private address itself, which no name is looked up for. */
export function isOutOfBounds({ hostname }: URL): boolean {
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(host) !== 0 && isPrivate(host);
}

/** POSTs the raw body, signed. Any 2xx is success; redirects are not followed; what the target answers with is not read. */
export function createForward({ url, secret, allowPrivate, concurrency }: ForwardOptions): Delivery {
  const isTls = url.protocol === 'https:';
  const agent = new (isTls ? HttpsAgent : HttpAgent)({ keepAlive: true, maxSockets: concurrency });
  const key = secret === null ? null : SCHEMES.standard.keyOf(secret);
  return {
    async deliver(task, signal) {
      if (!allowPrivate && isOutOfBounds(url)) return { error: PRIVATE_TARGET, retryAfter: null };
      const options = { method: 'POST', agent, signal, headers: headersOf(task, key), ...(allowPrivate ? {} : { lookup: lookupPublic }) };
      try {
        return judge(await send((isTls ? httpsRequest : httpRequest)(url, options), task.body));
      } catch (error) {
        return { error: describeFailure(error), retryAfter: null };
      }
    },
    close: async () => agent.destroy(),
  };
}

export const PRIVATE_TARGET = 'the target is a private address; set WEBHOOK_FORWARD_ALLOW_PRIVATE=on if that is meant';

function send(request: ReturnType<typeof httpRequest>, body: Buffer): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once('response', (response) => {
      // Short answers leave the connection to the next event; long and slow ones are not waited for.
      let size = 0;
      const timer = setTimeout(() => response.destroy(), 1_000);
      response.once('close', () => clearTimeout(timer));
      response.on('data', (chunk: Buffer) => {
        size += chunk.length;
        if (size > 16_384) response.destroy();
      });
      response.on('error', () => {});
      resolve(response);
    });
    request.once('error', reject);
    // Such as after 101, when there is neither a response nor an error.
    request.once('close', () => reject(new Error('closed')));
    request.end(body);
  });
}

function headersOf({ id, event, headers, body, attempt }: Task, key: Buffer | null): Record<string, string> {
  const time = String(Math.floor(Date.now() / 1000));
  const signature = key && createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest('base64');
  return {
    'content-type': headers['content-type'] ?? 'application/json',
    'content-length': String(body.length),
    'user-agent': 'gatehouse-webhook',
    'webhook-id': id,
    'webhook-timestamp': time,
    'gatehouse-event': encodeURIComponent(event),
    'gatehouse-attempt': String(attempt),
    ...(signature === null ? {} : { 'webhook-signature': `v1,${signature}` }),
  };
}

function judge({ statusCode = 0, headers }: IncomingMessage): Failed | null {
  if (statusCode >= 200 && statusCode < 300) return null;
  const moved = statusCode >= 300 && statusCode < 400 ? '; redirects are not followed' : '';
  return { error: `the target answered ${statusCode}${moved}`, retryAfter: secondsOf(headers['retry-after']) };
}

/** RFC 9110, 10.2.3: seconds, or a date. */
function secondsOf(retryAfter: string | undefined): number | null {
  if (retryAfter === undefined) return null;
  const seconds = /^[0-9]{1,9}$/.test(retryAfter) ? Number(retryAfter) : (Date.parse(retryAfter) - Date.now()) / 1000;
  return Number.isFinite(seconds) && seconds > 0 ? seconds : null;
}

function describeFailure(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
  return code === 'PRIVATE_ADDRESS' ? PRIVATE_TARGET : `the target could not be reached (${code})`;
}
