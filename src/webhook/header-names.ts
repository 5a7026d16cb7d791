const named = (...patterns: string[]) => new RegExp(`^(${patterns.join('|')})$`);

/**
 * Of the connection or the coding of a message (RFC 9110, 7.6.1). Forwarded, they could end a
 * request early or send it elsewhere (request smuggling).
 */
const OF_MESSAGE = named(
  'connection|keep-alive|te|trailers?|transfer-encoding|upgrade|expect|http2-settings',
  'host|content-(length|encoding)|proxy-.*|cookie',
);
/** Credentials, and what a program believes of the proxy before it. */
const TRUSTED = named(
  'authorization|forwarded|via|remote-user|((true|x-cluster)-)?client-ip|cf-connecting-ip',
  'x-(forwarded|auth|real|original|rewrite|remote|http-method)-.*',
);

/** CGI and its successors do not tell one sign from another. */
const normalize = (header: string) => header.toLowerCase().replace(/[^a-z0-9]/g, '-');

/** The name of a header in lower case (RFC 9110, 5.6.2). */
export const HEADER_NAME = /^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$/;

/** Whether a value of the sender can be in this header. */
export const isReadable = (header: string) => !OF_MESSAGE.test(normalize(header));

/** Whether a header of the sender may be stored with an event and sent to a target. */
export const isKeepable = (header: string) =>
  isReadable(header) && !TRUSTED.test(normalize(header));
