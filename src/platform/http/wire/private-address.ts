import { lookup } from 'node:dns/promises';
import { isIP, type LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import { Unavailable } from '../../runtime/errors.ts';
import { canonicalAddress, isIn, parseNetworks } from './address.ts';

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
/** The same through a NAT64 gateway, too (RFC 6052). */
function listOf(networks: readonly string[]) {
  const translated = networks.flatMap((network) => {
    const [address = '', bits = 32] = network.split('/');
    return isIP(address) === 4 ? [`64:ff9b::${address}/${96 + Number(bits)}`] : [];
  });
  return parseNetworks([...networks, ...translated].join());
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
  return listOf(addresses.map(({ address }) => address));
}

/**
 * The end of an ISATAP address, which contains an IPv4 address under any prefix (RFC 5214, 6.1).
 */
const ISATAP = /:(0|200|):5efe:([0-9a-f]+:[0-9a-f]+|:)$/;

/**
 * An IPv6 address that contains a private IPv4 address is private, too. So is text that is not an
 * address.
 * @param own the addresses of this machine
 */
export function isPrivate(address: string, own = ownAddresses()) {
  if (isIP(address) === 0 || isIn(PRIVATE, address) || isIn(own, address)) return true;
  // An address with a zone is link-local.
  return address.includes('%') || ISATAP.test(canonicalAddress(address));
}

/** The connection may use any of the addresses, so one private address is enough. */
export function includesPrivate(addresses: ReadonlyArray<Readonly<{ address: string }>>) {
  const own = ownAddresses();
  return addresses.some(({ address }) => isPrivate(address, own));
}

/**
 * Resolves a name, and fails if any of its addresses is private. The connection uses these
 * addresses, so a later DNS reply cannot change them (DNS rebinding).
 * @param problem what to say of a private address
 */
export const publicLookup =
  (problem: string): LookupFunction =>
  (host, options, done) => {
    const find = async () => {
      const addresses = await lookup(host, { ...options, all: true });
      if (includesPrivate(addresses)) throw new Unavailable(problem);
      return addresses;
    };
    find().then(
      (addresses) => {
        const [first] = addresses;
        if (options.all || !first) done(null, addresses);
        else done(null, first.address, first.family);
      },
      (error: Error) => done(error, ''),
    );
  };

/** For an address, Node does not call `lookup`. `localhost` is this machine (RFC 6761, 6.3). */
export function hasPrivateAddress({ hostname }: URL) {
  if (/(^|\.)localhost\.?$/.test(hostname)) return true;
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  return isIP(host) !== 0 && isPrivate(host);
}
