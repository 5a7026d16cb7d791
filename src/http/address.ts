import { BlockList, isIP } from 'node:net';
import { Expected, type Variable } from '../runtime/variables.ts';

const NETWORKS_FORM = 'a comma-separated list of addresses and CIDR ranges, such as 10.0.0.0/8,::1';

/** A variable that holds a list of networks. */
export const networks = (): Variable<BlockList> => ({ fallback: '–', unset: new BlockList(), parse: parseNetworks });

/** @param text addresses or CIDR ranges, as in `10.0.0.0/8,::1` */
export function parseNetworks(text: string): BlockList | Expected {
  const list = new BlockList();
  for (const entry of text.split(',').map((part) => part.trim()).filter((part) => part !== '')) {
    const [address = '', prefix, extra] = entry.split('/');
    const family = isIP(address);
    const bits = prefix === undefined ? (family === 4 ? 32 : 128) : /^[0-9]{1,3}$/.test(prefix) ? Number(prefix) : -1;
    if (family === 0 || extra !== undefined || bits < 0 || bits > (family === 4 ? 32 : 128)) return new Expected(NETWORKS_FORM);
    list.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6');
  }
  return list;
}

/** One spelling per address: IPv6 as RFC 5952 has it, and an IPv4 address that is written as IPv6 as plain IPv4. */
export function canonicalAddress(address: string): string {
  if (isIP(address) !== 6 || address.includes('%')) return address;
  const canonical = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  const [, high, low] = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(canonical) ?? [];
  if (high === undefined || low === undefined) return canonical;
  const bytes = [high, low].map((group) => Number.parseInt(group, 16)).flatMap((group) => [group >> 8, group & 255]);
  return bytes.join('.');
}

/** What throttles count an address by: IPv4 whole, of IPv6 the first 64 bits, since one subscriber has at least those. */
export function networkOf(address: string): string {
  const plain = canonicalAddress(address.split('%')[0] ?? '');
  if (isIP(plain) !== 6) return plain;
  const [head = '', tail] = plain.split('::');
  const groups = (text: string | undefined) => (text ? text.split(':') : []);
  const missing = 8 - groups(head).length - groups(tail).length;
  const all = [...groups(head), ...Array.from({ length: tail === undefined ? 0 : missing }, () => '0'), ...groups(tail)];
  return `${all.slice(0, 4).join(':')}::/64`;
}

/**
 * The client's address: the socket's, unless a trusted proxy is at the other end; then the rightmost entry of
 * X-Forwarded-For that is not a trusted proxy. What stands left of that is the client's own invention (ASVS 15.3.4).
 */
export function clientAddress(socketAddress: string, forwardedFor: string | undefined, trusted: BlockList): string {
  let client = canonicalAddress(socketAddress);
  if (!isTrusted(client, trusted)) return client;
  for (const entry of (forwardedFor ?? '').split(',').reverse()) {
    const address = canonicalAddress(entry.trim());
    if (isIP(address) === 0) break;
    client = address;
    if (!isTrusted(address, trusted)) break;
  }
  return client;
}

export function isTrusted(address: string, trusted: BlockList): boolean {
  const family = isIP(address);
  return family !== 0 && trusted.check(address, family === 4 ? 'ipv4' : 'ipv6');
}
