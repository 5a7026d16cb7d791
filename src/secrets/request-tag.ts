import { createHmac } from 'node:crypto';
import { equalDigests, sha256 } from '../platform/crypto/token.ts';
import { capabilityOf, type ServerKey } from './envelope.ts';

/** What a request holds until it is answered. The answer also sets its own key and its expiry. */
export type RequestTerms = Readonly<{
  id: string;
  creator: string | null;
  asker: string | null; // the name of the user who asks
  kind: string;
  title: string;
  public_key: string;
  digest: string; // in both links: the parties recognize by it what was asked for
  key_digest: Buffer; // of the key in the link to keep
  max_reads: number; // of the answer
  seconds: number; // how long the request is open, and how long its answer is kept
  answer_key: string | null;
  expires_at: Date;
}>;
export type RequestTag = Readonly<{
  key_id: string; // the server secret of the tag
  tag: Buffer | null; // null after a withdrawal
}>;

const TAGGED = [
  'id',
  'creator',
  'asker',
  'kind',
  'title',
  'public_key',
  'digest',
  'key_digest',
  'max_reads',
  'seconds',
  'answer_key',
  'expires_at',
] as const;

/**
 * Recognizes an altered request, which its answer would take over. The tag of a secret is made of
 * other bytes: it begins with 0.
 */
export const requestTagOf = (serverKey: ServerKey, terms: RequestTerms) =>
  createHmac('sha256', serverKey.rowKey)
    .update(JSON.stringify([serverKey.id, ...TAGGED.map((name) => terms[name])]))
    .digest();

type Judged = RequestTerms & RequestTag & Readonly<{ status: string; expired: boolean }>;

/**
 * What the holder of a key may learn of a request. A row is judged only for a key of it, so nobody
 * else learns that it is damaged. An altered row is reported before its expiry is believed.
 * @param keys of the server
 * @param sent the digest in the link to send, or the key in the link to keep
 */
export function judgeRequest(request: Judged, keys: readonly ServerKey[], sent: string) {
  const { id, key_id, key_digest, tag } = request;
  const receipts = keys.map((key) => capabilityOf(key, 'receipt', id));
  // The key in the link to keep is known from the server's keys, too, if the row was edited.
  const isOwn =
    [request.digest, ...receipts].some((own) =>
      equalDigests(Buffer.from(own), Buffer.from(sent)),
    ) || equalDigests(sha256(sent), key_digest);
  if (!isOwn) return 'wrong key';
  // After a withdrawal there is nothing to take over any more.
  if (request.status === 'withdrawn') return 'right';
  const serverKey = keys.find((key) => key.id === key_id);
  if (serverKey) {
    const isUnaltered = tag !== null && equalDigests(tag, requestTagOf(serverKey, request));
    return isUnaltered ? 'right' : 'altered';
  }
  const isKeyIdEdited = receipts.some((receipt) => equalDigests(sha256(receipt), key_digest));
  if (isKeyIdEdited) return 'altered';
  return request.expired ? 'ended' : 'key unknown';
}
