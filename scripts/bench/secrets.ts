/** Encrypting and decrypting secrets, compared with the same cryptography and one statement. */
import { join } from 'node:path';
import type { Report } from './compare.ts';
import { type RequestTemplate, writeRequests } from './load.ts';
import type { Bench, Target } from './measure.ts';
import { type LoadCase, measureCase, type Variant } from './operation.ts';
import { createClient, TOKEN } from './service.ts';

const SECRETS = 2_000;
/** Those that are read in bodies of 16 KB take long to store. */
const LARGE_SECRETS = 400;
const READS = 1_000;
const headers = { Authorization: `Bearer ${TOKEN}` };
const TEXT = 'correct horse battery staple, for measuring only ';

/** A request with a body of exactly this many bytes. */
function encryptRequest(bytes: number, limits: object = {}): RequestTemplate & { body: string } {
  const bodyWith = (password: string) => JSON.stringify({ password, ...limits });
  const body = bodyWith(TEXT.padEnd(bytes - bodyWith('').length, 'x'));
  return { method: 'POST', path: '/api/store/encrypt', headers, body };
}

/** Stores secrets through the server itself. @returns the requests that read them */
async function storeSecrets({ service }: Target, bytes: number): Promise<RequestTemplate[]> {
  const count = bytes > 4_096 ? LARGE_SECRETS : SECRETS;
  const reads: RequestTemplate[] = [];
  const { method, path, body } = encryptRequest(bytes, { max_reads: READS });
  const run = async () => {
    const { send, close } = createClient(service);
    while (reads.length < count) {
      const { status, text } = await send(
        method,
        path,
        { ...headers, 'content-type': 'application/json' },
        body,
      );
      if (status !== 201) throw new Error(`encrypt: ${status} ${text}`);
      const { id, secret }: { id: string; secret: string } = JSON.parse(text);
      const decryptPath = `/api/store/decrypt?id=${id}`;
      reads.push({ method: 'POST', path: decryptPath, headers, body: JSON.stringify({ secret }) });
    }
    close();
  };
  await Promise.all(Array.from({ length: 16 }, run));
  return reads;
}

async function createTable({ sql, role }: Target): Promise<void> {
  if (role !== 'baseline' && role !== 'floor') return;
  await sql`set client_min_messages = warning`;
  await sql`create schema if not exists baseline`;
  await sql`
    create table if not exists baseline.secrets (
      id uuid primary key, commitment bytea not null, blob bytea not null, tag bytea not null,
      created_at timestamptz not null default now(), expires_at timestamptz not null,
        max_reads integer,
      reads bigint not null default 0, last_read_at timestamptz
    )`;
}

type Targets = NonNullable<Variant['targets']>;

const decryptVariant = (name: string, bytes: number, targets: Targets = {}): Variant => ({
  name,
  targets,
  async prepare({ directory }, target) {
    await createTable(target);
    const file = join(directory, `decrypt-${target.service.port}`);
    return {
      file: writeRequests(file, await storeSecrets(target, bytes)),
      status: 200,
      text: TEXT,
    };
  },
});

export const decryptCase: LoadCase = {
  name: 'decrypt',
  service: 'secrets',
  baseline: 'decrypt',
  hasFloor: true,
  caveat:
    'Every read counts in a row of its own. Not measured: how fast many clients read one secret,' +
    ' and passphrases.',
  variants: [
    decryptVariant('1 KB', 1_024, { rate: 1.3, cpu: 1, cpuBesideFloor: 1.6 }),
    decryptVariant('110 bytes', 110),
    decryptVariant('16 KB', 16_384),
    decryptVariant('32 KB', 32_768),
  ],
};

const encryptVariant = (name: string, bytes: number, targets: Targets = {}): Variant => ({
  name,
  targets,
  async prepare({ directory }, target) {
    await createTable(target);
    const file = writeRequests(join(directory, `encrypt-${bytes}`), [encryptRequest(bytes)]);
    return { file, status: 201, text: '"secret":"' };
  },
});

export const encryptCase: LoadCase = {
  name: 'encrypt',
  service: 'secrets',
  baseline: 'encrypt',
  hasFloor: true,
  caveat: 'Not measured: the later removal of expired secrets, and passphrases.',
  variants: [
    encryptVariant('1 KB', 1_024, { rate: 1.4, cpu: 1, cpuBesideFloor: 1.3 }),
    encryptVariant('110 bytes', 110),
    encryptVariant('16 KB', 16_384, { rate: 1.1, cpu: 1 }),
    encryptVariant('32 KB', 32_768),
  ],
};

export const decrypt = (bench: Bench): Promise<Report> => measureCase(bench, decryptCase);
export const encrypt = (bench: Bench): Promise<Report> => measureCase(bench, encryptCase);
