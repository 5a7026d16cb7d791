import { randomUUID } from 'node:crypto';
import { createClientKey, seal, type ServerKey } from '../crypto/envelope.ts';
import { createKdfParams, stretch } from '../crypto/scrypt.ts';
import type { Database } from '../db/pool.ts';
import { Failure } from '../http/errors.ts';
import type { Call, Reply, RequestInfo } from '../http/route.ts';
import {
  boolean,
  decimal,
  type Infer,
  integer,
  nullable,
  object,
  oneOf,
  optional,
  queryParameters,
  text,
  uuid,
  withoutNul,
} from '../http/schema.ts';
import { type Caller, ownOnly } from './guard.ts';
import { capabilityOf, rowTagOf, sealWithPassphrase } from './sealing.ts';
import { countAttempt, recordEvent, type SecretsService } from './service.ts';
import type { Limits } from './settings.ts';
import { withdrawRequest } from './store/requests.ts';
import {
  deleteSecret,
  findReceipt,
  insertSecret,
  listSecrets,
  timeIn,
  type NewSecret,
} from './store/secrets.ts';

/** Shorter ones could be guessed even within the limits of the throttle. */
const MIN_PASSPHRASE = 4;

export const passphraseSchema = (description: string) =>
  optional(
    text({
      min: MIN_PASSPHRASE,
      max: 1_024,
      check: withoutNul,
      description,
    }),
  );

export const passwordSchema = ({ password: { max_bytes } }: Limits) =>
  text({
    min: 1,
    description: `The secret text: 1 to ${max_bytes} bytes of UTF-8, returned unchanged`,
    check: (value) =>
      Buffer.byteLength(value) > max_bytes ? `must have at most ${max_bytes} bytes in UTF-8` : null,
  });
export const lifetimeMembers = ({ expires_in, max_reads }: Limits) => ({
  expires_in: optional(
    integer({ min: 1, max: expires_in.max, description: 'Seconds until it expires' }),
  ),
  max_reads: optional(
    integer({ min: 1, max: max_reads.max, description: 'How often it can be read' }),
  ),
});

/**
 * Unknown members are rejected: a misspelled `max_reads` would leave the secret readable until it
 * expires.
 */
export const encryptRequestSchema = (limits: Limits) =>
  object(
    {
      password: passwordSchema(limits),
      ...lifetimeMembers(limits),
      passphrase: passphraseSchema(
        'Required in addition to the key; send it to the reader over another channel',
      ),
    },
    'rejected',
  );
type EncryptCall = Call<Caller, unknown, unknown, Infer<ReturnType<typeof encryptRequestSchema>>>;

/** Encrypts a text under the server's key and a new client key, which this reply alone contains. */
export async function encrypt({ body, caller, request }: EncryptCall, service: SecretsService) {
  const { database, hashing, limits, passphraseCost, serverKey, sharePages } = service;
  const refused = await limitVisitor(caller, request, service);
  if (refused) return refused;
  const {
    passphrase,
    max_reads = limits.max_reads.default,
    expires_in = limits.expires_in.default,
  } = body;
  const kdfParams = createKdfParams(passphraseCost);
  // Before the time is read, because the hash may wait for a slot.
  const lock =
    passphrase === undefined
      ? null
      : { kdfParams, stretched: await hashing.run(() => stretch(passphrase, kdfParams)) };
  const expires_at = expires_in === null ? null : await timeIn(database, expires_in);

  const id = randomUUID();
  const clientKey = createClientKey();
  const terms = {
    id,
    expires_at,
    max_reads,
    creator: caller.creator,
  };
  const row = sealRow(serverKey, clientKey, terms, body.password, lock);
  await insertSecret(database, row);
  recordEvent(service, 'stored', row, request);
  const receipt = sharePages ? capabilityOf(serverKey, 'receipt', id) : undefined;
  return {
    data: {
      id,
      secret: clientKey.toString('base64url'),
      expires_at,
      receipt,
    },
  };
}

/** What is stored without a credential is limited. */
export const limitVisitor = async (
  { role }: Caller,
  { network }: RequestInfo,
  service: SecretsService,
) => (role === 'anyone' ? countAttempt(service, 'anyone', network) : null);

/** @param lock the passphrase, after `stretch` with these parameters */
export function sealRow(
  serverKey: ServerKey,
  clientKey: Buffer,
  terms: Pick<NewSecret, 'id' | 'expires_at' | 'max_reads' | 'creator'>,
  password: string,
  lock: Readonly<{ kdfParams: string; stretched: Buffer }> | null,
): NewSecret {
  const { id, expires_at, max_reads } = terms;
  const metadata = { id, expiresAt: expires_at?.getTime() ?? null, maxReads: max_reads };
  const plaintext = Buffer.from(password, 'utf8');
  const sealed = lock
    ? sealWithPassphrase(serverKey, clientKey, metadata, plaintext, lock.kdfParams, lock.stretched)
    : seal(serverKey, clientKey, metadata, plaintext);
  return {
    ...terms,
    key_id: serverKey.id,
    ...sealed,
    tag: rowTagOf(serverKey, metadata, sealed),
  };
}

export const positive = integer({ min: 1, max: Number.MAX_SAFE_INTEGER });
const limitSchema = object({ default: nullable(positive), max: positive });
export const optionsSchema = object({
  expires_in: limitSchema,
  max_reads: limitSchema,
  share_pages: boolean(),
  passphrase: object({ min_length: positive }),
  password: object({ max_bytes: positive }),
  caller: object({
    role: oneOf('anyone', 'sender', 'operator'),
    user: nullable(text()),
  }),
});

/** The limits and defaults of this server, for clients that offer a form. */
export async function options(
  { caller: { role, creator } }: Call<Caller, unknown, unknown, null>,
  { limits, sharePages }: SecretsService,
) {
  const user = creator?.startsWith('user:') ? creator.slice(5) : null;
  return {
    data: {
      ...limits,
      passphrase: { min_length: MIN_PASSPHRASE },
      share_pages: sharePages,
      caller: { role, user },
    },
  };
}

/** Rows per statement, so that memory does not grow with the number of secrets. */
const PAGE = 100;
const MAX_LISTED_BYTES = 8 * 1024 * 1024;
const NIL_UUID = '00000000-0000-0000-0000-000000000000';

export const listQuery = queryParameters({
  limit: optional(
    decimal({
      min: 1,
      max: PAGE,
      description: 'Secrets per page; all of them without limit and after',
    }),
  ),
  after: optional(uuid('The last id of the previous page')),
});
export const listedSchema = object({
  id: uuid(),
  secret: text({ description: 'The encrypted secret' }),
});
export const idMember = { id: uuid('The id that encrypt returned') };
export const deletedSchema = object({ id: uuid(), status: oneOf('deleted', 'withdrawn') });

type ListCall = Call<Caller, unknown, Infer<typeof listQuery>, null>;
type Listed = Infer<typeof listedSchema>;

/**
 * Every readable secret as id and encrypted text: all of them as a stream, or one page. None of it
 * is a key.
 */
export async function list(
  { query: { limit, after } }: ListCall,
  { database, limits }: SecretsService,
): Promise<Reply<Listed[]>> {
  const most = Math.min(PAGE, Math.ceil(MAX_LISTED_BYTES / limits.password.max_bytes));
  if (limit === undefined && after === undefined) return { items: listAll(database, most) };
  const count = Math.min(limit ?? PAGE, most);
  // One row more than the page has shows whether there is a next page.
  const found = await listSecrets(database, after ?? NIL_UUID, count + 1);
  const data = found.slice(0, count);
  const next = `</api/store?limit=${count}&after=${data.at(-1)?.id}>; rel="next"`;
  return { data, headers: found.length > count ? { Link: next } : {} };
}

async function* listAll(database: Database, count: number): AsyncGenerator<Listed[]> {
  let last: string | undefined = NIL_UUID;
  while (last !== undefined) {
    const items: Listed[] = await listSecrets(database, last, count);
    yield items;
    last = items[count - 1]?.id;
  }
}

const NO_RECEIPT = 'There is no such secret, or its receipt is no longer kept.';
const NOT_DELETED =
  'Nothing to delete: the secret does not exist, was already read, or has expired. See its receipt.';

export async function receipt(
  { path, caller }: Call<Caller, { id: string }, unknown, null>,
  { database }: SecretsService,
) {
  const data = await findReceipt(database, path.id, ownOnly(caller));
  return data ? { data } : new Failure('not_found', { message: NO_RECEIPT });
}

/**
 * Withdraws the request with this id if it is open, and otherwise deletes the secret. Of a deletion
 * and a simultaneous last read, exactly one succeeds.
 * @param creator as of `deleteSecret`
 */
export async function deleteAndReport(
  service: SecretsService,
  id: string,
  creator: string | null,
  request: RequestInfo,
) {
  if (await withdrawRequest(service.database, id, creator)) {
    recordEvent(service, 'request withdrawn', { id, key_id: null }, request);
    return { data: { id, status: 'withdrawn' } } as const;
  }
  const deleted = await deleteSecret(service.database, id, creator);
  if (!deleted) return new Failure('not_found', { message: NOT_DELETED });
  if (deleted.is_new) recordEvent(service, 'deleted', deleted, request);
  return { data: { id: deleted.id, status: 'deleted' } } as const;
}
