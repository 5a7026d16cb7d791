import type { ClientRequest } from 'node:http';
import { TLSSocket } from 'node:tls';
import { codeOf, Unavailable } from '../platform/runtime/errors.ts';

/** What a code of Node, of OpenSSL or of the parser of HTTP means. The first that fits counts. */
const REASONS: ReadonlyArray<readonly [RegExp, string]> = [
  [/^(ENOTFOUND|ENODATA)$/, 'the name of the target has no address in DNS'],
  [/^EAI_/, 'the name of the target could not be looked up: DNS did not answer'],
  [/^ECONNREFUSED$/, 'the target refused the connection: nothing listens at its port'],
  [/^(ECONNRESET|ECONNABORTED|EPIPE)$/, 'the target closed the connection before it had answered'],
  [/^ETIMEDOUT$/, 'the target did not accept the connection: a firewall may drop it'],
  [/^E(HOST|NET)(UNREACH|DOWN)$/, 'there is no route to the network of the target'],
  [/^(EACCES|EPERM)$/, 'this machine does not allow a connection to the target'],
  [/^(EMFILE|ENFILE|ENOBUFS|EADDRNOTAVAIL)$/, 'this machine has no connection left for the target'],
  [/^CERT_HAS_EXPIRED$/, "the target's certificate has expired"],
  [
    /^CERT_NOT_YET_VALID$/,
    "the target's certificate is not valid yet, or the clock of this machine is slow",
  ],
  [/^CERT_REVOKED$/, "the target's certificate was revoked"],
  [
    /^(ERR_TLS_CERT_ALTNAME_INVALID|HOSTNAME_MISMATCH)$/,
    "the target's certificate is for another name",
  ],
  [
    /^DEPTH_ZERO_SELF_SIGNED_CERT$/,
    "the target's certificate is self-signed; NODE_EXTRA_CA_CERTS names certificates to trust",
  ],
  [
    /^(SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF).*)$/,
    "the target's certificate is of an unknown authority, or an intermediate certificate is missing; NODE_EXTRA_CA_CERTS names certificates to trust",
  ],
  [
    /^(EPROTO|ERR_SSL_(WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST))$/,
    'the target uses another version of TLS, or none: then its URL begins with http',
  ],
  [/^ERR_SSL_.*CERTIFICATE_REQUIRED$/, 'the target requires a client certificate'],
  [
    /^(CERT|INVALID_(CA|PURPOSE)|PATH_LENGTH|UNABLE_TO|ERR_(SSL|TLS))/,
    'a secure connection to the target failed',
  ],
  [/^HPE_HEADER_OVERFLOW$/, "the header of the target's answer is larger than 16 KiB"],
  [/^HPE_/, "the target's answer is not valid HTTP: its URL may begin with https"],
];

/**
 * For a person, with the code for a search.
 * @param error why there is no answer of the target; none if the connection has just ended
 */
export function describeFailure(error?: unknown) {
  if (error instanceof Unavailable) return error.message;
  const code = error === undefined ? 'ECONNRESET' : codeOf(error);
  const [, reason = 'the request to the target failed'] =
    REASONS.find(([form]) => form.test(code)) ?? [];
  return code === 'unknown' ? reason : `${reason} (${code})`;
}

/** @returns for what the target has let the request wait */
export function stageOf({ socket, writableFinished }: ClientRequest) {
  if (!socket || socket.connecting) return 'there was no connection to the target';
  if (socket instanceof TLSSocket && socket.getCipher() === undefined)
    return 'the target did not complete the TLS handshake';
  if (!writableFinished) return 'the target did not read the event';
  return 'the target did not answer';
}

const NOTES: Readonly<Record<number, string>> = {
  101: '; it changed the protocol in place of an answer',
  304: '; it must answer with 2xx',
  413: '; the event is too large for it',
};

/** @param status of an answer that is no success */
export function describeStatus(status: number) {
  const redirect = status >= 300 && status < 400 ? '; redirects are not followed' : '';
  return `the target answered ${status}${NOTES[status] ?? redirect}`;
}
