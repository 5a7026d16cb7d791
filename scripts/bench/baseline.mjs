/**
 * The baseline implementations: node:http with one statement per request.
 *
 *   node baseline.mjs ROUTE CONNECTIONS
 *   node baseline.mjs ROUTE shared
 *
 * With one connection `postgres` pipelines the statements; with ten, each uses a free one. With
 * `shared`, the floor, requests that arrive together share a statement: the least that this work
 * costs. It does not count or limit anything either.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createHmac,
  hkdfSync,
  randomBytes,
  randomUUID,
  timingSafeEqual,
} from 'node:crypto';
import { createServer } from 'node:http';
import postgres from 'postgres';

const [route, connections] = process.argv.slice(2);
const { DATABASE_URL, AUTH_TOKEN = '' } = process.env;
const isShared = connections === 'shared';
const sql = postgres(DATABASE_URL, { max: isShared ? 2 : Number(connections) });

/**
 * Gathers the calls of one turn of the event loop, and while two statements are under way.
 * @param run one statement for all of them, with a result for each
 */
function sharing(run) {
  let waiting = [];
  let underWay = 0;
  let isGathering = false;
  const sendNext = async () => {
    isGathering = false;
    const calls = waiting;
    waiting = [];
    underWay += 1;
    try {
      const results = await run(calls.map(({ item }) => item));
      calls.forEach(({ resolve }, at) => resolve(results[at]));
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
    underWay -= 1;
    gather();
  };
  const gather = () => {
    if (isGathering || underWay === 2 || waiting.length === 0) return;
    isGathering = true;
    setImmediate(sendNext);
  };
  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      gather();
    });
}

/** An array of PostgreSQL as text. */
const hexArray = (values) => `{${values.map((value) => `"\\\\x${value.toString('hex')}"`)}}`;

const digest = (text) => createHash('sha256').update(text).digest();
const expected = digest(AUTH_TOKEN);
const tokenOf = (request) => request.headers.authorization?.slice('Bearer '.length) ?? '';
const isAuthorized = (request) => timingSafeEqual(digest(tokenOf(request)), expected);

const bodyOf = (request) =>
  new Promise((resolve, reject) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk)).on('error', reject);
    request.on('end', () => resolve(Buffer.concat(chunks)));
  });

const USER = `u.id, u.first_name, u.last_name, u.username, u.email, u.enabled, u.verified,
  u.super_admin, u.created_at, u.updated_at, u.deleted_at`;
const IS_VALID = `not s.revoked and not s.logged_out and s.expires_at > now()
  and s.deleted_at is null and u.enabled and u.deleted_at is null`;

async function findUser(token) {
  const [user] = await sql`
    select ${sql.unsafe(USER)}
    from identity.sessions s join identity.users u on u.id = s.user_id
    where s.token_digest = ${token} and ${sql.unsafe(IS_VALID)}`;
  return user;
}

const findUsers = sharing(async (tokens) => {
  const rows = await sql`
    select encode(s.token_digest, 'hex') as token, ${sql.unsafe(USER)}
    from identity.sessions s join identity.users u on u.id = s.user_id
    where s.token_digest = any (${hexArray(tokens)}::bytea[]) and ${sql.unsafe(IS_VALID)}`;
  const found = new Map(rows.map(({ token, ...user }) => [token, user]));
  return tokens.map((token) => found.get(token.toString('hex')));
});

async function bearer(request) {
  const token = digest(tokenOf(request));
  const user = await (isShared ? findUsers : findUser)(token);
  return user && { data: { ip: request.socket.remoteAddress, user } };
}

async function webhook(request) {
  if (!isAuthorized(request)) return undefined;
  return store(await bodyOf(request));
}

// As GitHub signs.
async function signed(request) {
  if (!isAuthorized(request)) return undefined;
  const body = await bodyOf(request);
  const expectedSignature = createHmac('sha256', AUTH_TOKEN).update(body).digest('hex');
  const signature = request.headers['x-hub-signature-256'];
  const isValid = timingSafeEqual(digest(signature), digest(`sha256=${expectedSignature}`));
  return isValid ? store(body) : undefined;
}

async function store(body) {
  const id = randomUUID();
  await sql`insert into baseline.events (id, event, body)
    values (${id}, ${JSON.parse(body).event}, ${body})`;
  return { id, status: 'accepted' };
}

// The same cryptography as in src/platform/crypto/seal.ts, with constant keys.
const KEY_ID = Buffer.alloc(8, 1);
const SALT = Buffer.alloc(32, 2);
const ROW_KEY = Buffer.alloc(32, 3);
const LABEL = Buffer.from('gatehouse/secrets/v1/');
const TAG_LENGTH = { authTagLength: 16 };
const uuidBytes = (id) => Buffer.from(id.replaceAll('-', ''), 'hex');

function derive(clientKey, id) {
  const info = Buffer.concat([LABEL, Buffer.of(1), KEY_ID, uuidBytes(id)]);
  const output = Buffer.from(hkdfSync('sha256', clientKey, SALT, info, 64));
  return { key: output.subarray(0, 32), commitment: output.subarray(32) };
}

function associatedData(id, expiresAt, maxReads, version) {
  const limits = Buffer.alloc(12);
  limits.writeBigUInt64BE(BigInt(expiresAt.getTime()), 0);
  limits.writeUInt32BE(maxReads ?? 0, 8);
  return Buffer.concat([Buffer.of(version), KEY_ID, uuidBytes(id), limits]);
}

// Padmé above 256 bytes, as src/platform/crypto/seal.ts.
function paddedLength(length) {
  if (length <= 256) return 256;
  const exponent = Math.floor(Math.log2(length));
  const step = 2 ** (exponent - (Math.floor(Math.log2(exponent)) + 1));
  return Math.ceil(length / step) * step;
}

const rowTag = (data, commitment, blob) =>
  createHmac('sha256', ROW_KEY).update(data).update(commitment).update(blob).digest();

const insertSecret = (row) => sql`insert into baseline.secrets ${sql(row)}`;

const insertSecrets = sharing(async (rows) => {
  const hex = (bytes) => `\\x${bytes.toString('hex')}`;
  const values = rows.map(({ commitment, blob, tag, ...row }) => {
    return { ...row, commitment: hex(commitment), blob: hex(blob), tag: hex(tag) };
  });
  await sql`
    insert into baseline.secrets (id, commitment, blob, tag, expires_at, max_reads)
    select id, commitment, blob, tag, expires_at, max_reads
    from json_to_recordset(${JSON.stringify(values)}::text::json) as given (
      id uuid, commitment bytea, blob bytea, tag bytea, expires_at timestamptz, max_reads int
    )`;
  return rows;
});

async function readSecret({ id, commitment }) {
  const [row] = await sql`
    update baseline.secrets set reads = reads + 1, last_read_at = now()
    where id = ${id} and commitment = ${commitment} and expires_at > now()
    and (max_reads is null or reads < max_reads)
    returning blob, tag, expires_at, max_reads`;
  return row;
}

const readSecrets = sharing(async (given) => {
  const rows = await sql`
    update baseline.secrets s set reads = reads + 1, last_read_at = now()
    from unnest(${`{${given.map(({ id }) => id)}}`}::uuid[],
      ${hexArray(given.map(({ commitment }) => commitment))}::bytea[]) as g (id, commitment)
    where s.id = g.id and s.commitment = g.commitment and expires_at > now()
    and (max_reads is null or reads < max_reads)
    returning s.id, blob, tag, expires_at, max_reads`;
  const found = new Map(rows.map((row) => [row.id, row]));
  return given.map(({ id }) => found.get(id));
});

async function encrypt(request) {
  if (!isAuthorized(request)) return undefined;
  const { password, max_reads: maxReads = null } = JSON.parse(await bodyOf(request));
  const id = randomUUID();
  const clientKey = randomBytes(32);
  const nonce = randomBytes(12);
  const expiresAt = new Date(Date.now() + 7 * 86_400_000);
  const { key, commitment } = derive(clientKey, id);
  const text = Buffer.from(password);
  const padded = Buffer.alloc(paddedLength(4 + text.length));
  padded.writeUInt32BE(text.length, 0);
  text.copy(padded, 4);
  const cipher = createCipheriv('aes-256-gcm', key, nonce, TAG_LENGTH);
  cipher.setAAD(associatedData(id, expiresAt, maxReads, 1));
  const blob = Buffer.concat([
    Buffer.of(1),
    nonce,
    cipher.update(padded),
    cipher.final(),
    cipher.getAuthTag(),
  ]);
  const tag = rowTag(associatedData(id, expiresAt, maxReads, 0), commitment, blob);
  const row = { id, commitment, blob, tag, expires_at: expiresAt, max_reads: maxReads };
  await (isShared ? insertSecrets : insertSecret)(row);
  return { id, secret: clientKey.toString('base64url'), expires_at: expiresAt };
}

async function decrypt(request) {
  if (!isAuthorized(request)) return undefined;
  const id = new URL(request.url, 'http://localhost').searchParams.get('id');
  const { key, commitment } = derive(
    Buffer.from(JSON.parse(await bodyOf(request)).secret, 'base64url'),
    id,
  );
  const row = await (isShared ? readSecrets : readSecret)({ id, commitment });
  if (!row) return undefined;
  const { blob, tag, expires_at: expiresAt, max_reads: maxReads } = row;
  const expectedTag = rowTag(associatedData(id, expiresAt, maxReads, 0), commitment, blob);
  if (!timingSafeEqual(tag, expectedTag)) return undefined;
  const decipher = createDecipheriv('aes-256-gcm', key, blob.subarray(1, 13), TAG_LENGTH);
  decipher.setAAD(associatedData(id, expiresAt, maxReads, 1)).setAuthTag(blob.subarray(-16));
  const padded = Buffer.concat([decipher.update(blob.subarray(13, -16)), decipher.final()]);
  return { password: padded.toString('utf8', 4, 4 + padded.readUInt32BE(0)) };
}

const routes = {
  bearer: [bearer, 200],
  webhook: [webhook, 200],
  signed: [signed, 200],
  encrypt: [encrypt, 201],
  decrypt: [decrypt, 200],
};
const [handle, success] = routes[route];
const server = createServer((request, response) => {
  const send = (status, value) => {
    const text = JSON.stringify(value);
    const headers = {
      'Content-Type': 'application/json',
      'Content-Length': Buffer.byteLength(text),
    };
    response.writeHead(status, headers).end(text);
  };
  // What is decrypted was stored by the same process.
  const isStore = request.url === '/api/store/encrypt';
  const status = isStore ? 201 : success;
  (isStore ? encrypt : handle)(request).then(
    (value) => send(value ? status : 401, value ?? {}),
    (error) => send(500, { error: String(error) }),
  );
});
// An orderly exit, which writes a CPU profile if one was asked for.
process.on('SIGINT', () => process.exit());
server.listen(0, '127.0.0.1', () => {
  console.log(
    JSON.stringify({ message: 'listening', service: 'baseline', port: server.address().port }),
  );
  console.log(JSON.stringify({ message: 'ready', service: 'baseline' }));
});
