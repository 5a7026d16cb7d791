/** Encrypting and decrypting secrets, compared with the same cryptography and one statement; and the list. */
import { join } from 'node:path';
import { type Bench, compareRates, measureRounds, type Report, startBaselines } from './compare.ts';
import { type Replay, type RequestTemplate, writeRequests } from './load.ts';
import { createClient, type Service, startServices, TOKEN } from './service.ts';

const SECRETS = 2_000;
const READS = 1_000;
const TEXT = 'correct horse battery staple, for measuring only';
const headers = { Authorization: `Bearer ${TOKEN}` };
const encryptRequest = (limits: object = {}) => {
  return { method: 'POST', path: '/api/store/encrypt', headers, body: JSON.stringify({ password: TEXT, ...limits }) };
};

/** Stores secrets through the server itself. @returns the requests that read them */
async function storeSecrets(service: Service): Promise<RequestTemplate[]> {
  const reads: RequestTemplate[] = [];
  const { method, path, body } = encryptRequest({ max_reads: READS });
  const run = async () => {
    const { send, close } = createClient(service);
    while (reads.length < SECRETS) {
      const { status, text } = await send(method, path, { ...headers, 'content-type': 'application/json' }, body);
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

export async function secrets(bench: Bench): Promise<Report> {
  const { sql, directory } = bench;
  await sql`create schema if not exists baseline`;
  await sql`
    create table baseline.secrets (
      id uuid primary key, commitment bytea not null, blob bytea not null, tag bytea not null,
      created_at timestamptz not null default now(), expires_at timestamptz not null, max_reads integer,
      reads bigint not null default 0, last_read_at timestamptz
    )`;
  const ours = { name: 'gatehouse', service: await startServices(['secrets'], bench.postgres.url) };
  const encrypters = await startBaselines(bench, 'encrypt');
  const decrypters = await startBaselines(bench, 'decrypt');
  const [encrypter] = encrypters;
  if (!encrypter) throw new Error('no baseline');
  const replay = (name: string, requests: readonly RequestTemplate[], text: string, status = 200): Replay => {
    return { file: writeRequests(join(directory, name), requests), status, text };
  };

  const readOurs = replay('decrypt-ours', await storeSecrets(ours.service), TEXT);
  const readBaseline = replay('decrypt-baseline', await storeSecrets(encrypter.service), TEXT);
  const decrypt = await measureRounds(bench, 64, [
    ...decrypters.map((one) => ({ ...one, replay: readBaseline })), { ...ours, replay: readOurs },
  ]);
  const store = replay('encrypt', [encryptRequest()], '"secret":"', 201);
  const encrypt = await measureRounds(bench, 64, [...encrypters, ours].map((one) => ({ ...one, replay: store })));
  const page = replay('list', [{ method: 'GET', path: '/api/store?limit=100', headers }], '"secret":"');
  const list = await measureRounds({ ...bench, warmUp: 0 }, 64, [{ ...ours, replay: page }]);
  return {
    comparisons: [
      compareRates('encrypt, 64 clients', encrypt, 1.6),
      compareRates('decrypt, 64 clients', decrypt, 1.1),
    ],
    figures: [
      ['encrypt, 64 clients', encrypt],
      ['decrypt, 64 clients', decrypt],
      ['list, a page of 100 secrets, 64 clients', list],
    ],
  };
}
