import { BlockList, isIP, SocketAddress } from 'node:net';
import { Expected, splitList } from '../../runtime/env.ts';

/** @param text addresses or CIDR ranges, as in `10.0.0.0/8,::1`  @throws Expected */
export function parseNetworks(text: string) {
  const list = new BlockList();
  for (const entry of splitList(text)) {
    const [, address = '', prefix] = /^([^/]+)(?:\/([0-9]{1,3}))?$/.exec(entry) ?? [];
    const family = isIP(address);
    const width = family === 4 ? 32 : 128;
    const bits = Number(prefix ?? width);
    if (family === 0 || bits > width) {
      throw new Expected(
        'a comma-separated list of addresses and CIDR ranges, such as 10.0.0.0/8,::1',
      );
    }
    list.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6');
  }
  return list;
}

/**
 * The canonical form of an address: IPv6 as in RFC 5952, and an IPv4-mapped IPv6 address as IPv4.
 */
export function canonicalAddress(address: string) {
  if (isIP(address) !== 6 || address.includes('%')) return address;
  return new SocketAddress({ address, family: 'ipv6' }).address.replace(/^::ffff:(?=[\d.]+$)/, '');
}

/**
 * The network for throttles: an IPv4 address, or the first 64 bits of an IPv6 address, which one
 * subscriber has.
 */
export function networkOf(address: string) {
  const canonical = canonicalAddress(address.split('%')[0] ?? '');
  if (isIP(canonical) !== 6) return canonical;
  const colons = canonical.split(':').length - 1;
  const full = canonical.replace('::', `:${'0:'.repeat(8 - colons)}`);
  const groups = full.split(':', 4).map((group) => group || '0');
  return `${groups.join(':')}::/64`;
}

/**
 * The client's address: the socket's, unless that is a trusted proxy. Then it is the rightmost
 * entry of X-Forwarded-For that is not a trusted proxy. The client itself can invent everything to
 * the left of it (ASVS 15.3.4).
 */
export function clientAddress(
  socketAddress: string,
  forwardedFor: string | undefined,
  trusted: BlockList,
) {
  let client = '';
  for (const entry of [socketAddress, ...(forwardedFor ?? '').split(',').reverse()]) {
    // Azure and IIS append the port.
    const bare = entry.trim().replace(/^\[([0-9a-f:.]+)\](:\d{1,5})?$|^([\d.]+):\d{1,5}$/i, '$1$3');
    if (isIP(bare) === 0) break;
    client = canonicalAddress(bare);
    if (!isIn(trusted, client)) break;
  }
  return client;
}

export function isIn(list: BlockList, address: string) {
  const family = isIP(address);
  return family !== 0 && list.check(address, family === 4 ? 'ipv4' : 'ipv6');
}
