/** Sealing and opening secrets, durable, against the same cryptography and one statement; and the list. */
import { join } from 'node:path';
import { type Bench, rateAgainst, type Report, startPlain, takeTurns } from './compare.ts';
import { type Ask, writeRequests } from './load.ts';
import { createClient, type Service, startServices, TOKEN } from './service.ts';

const SECRETS = 2_000;
const READS = 1_000;
const TEXT = 'correct horse battery staple, for measuring only';
const headers = { Authorization: `Bearer ${TOKEN}` };

/** Secrets to be read, made by a server itself. @returns the requests that read them */
async function prepareSecrets(service: Service): Promise<Ask[]> {
  const asks: Ask[] = [];
  const client = async () => {
    const { ask, close } = createClient(service);
    while (asks.length < SECRETS) {
      const { status, text } = await ask('POST', '/api/store/encrypt', { ...headers, 'content-type': 'application/json' }, JSON.stringify({ password: TEXT, max_reads: READS }));
      if (status !== 201) throw new Error(`encrypt: ${status} ${text}`);
      const { id, secret }: { id: string; secret: string } = JSON.parse(text);
      asks.push({ method: 'POST', path: `/api/store/decrypt?id=${id}`, headers, body: JSON.stringify({ secret }) });
    }
    close();
  };
  await Promise.all(Array.from({ length: 16 }, client));
  return asks;
}

export async function secrets(bench: Bench): Promise<Report> {
  const { sql, directory } = bench;
  await sql`create schema if not exists plain`;
  await sql`
    create table plain.secrets (
      id uuid primary key, commitment bytea not null, blob bytea not null, tag bytea not null, created_at timestamptz not null default now(),
      expires_at timestamptz not null, max_reads integer, reads bigint not null default 0, last_read_at timestamptz
    )`;
  const ours = { name: 'gatehouse', service: await startServices(['secrets'], bench.postgres.url) };
  const [sealing, opening] = [await startPlain(bench, 'encrypt'), await startPlain(bench, 'decrypt')];
  const [maker] = sealing;
  if (!maker) throw new Error('somebody makes the secrets of the plain form');
  const replayOf = (name: string, asks: readonly Ask[], text: string, status = 200) => ({ file: writeRequests(join(directory, name), asks), status, text });

  const read = { ours: replayOf('decrypt-ours', await prepareSecrets(ours.service), TEXT), plain: replayOf('decrypt-plain', await prepareSecrets(maker.service), TEXT) };
  const decrypt = await takeTurns(bench, 64, [...opening.map((one) => ({ ...one, replay: read.plain })), { ...ours, replay: read.ours }]);
  const store = replayOf('encrypt', [{ method: 'POST', path: '/api/store/encrypt', headers, body: JSON.stringify({ password: TEXT }) }], '"secret":"', 201);
  const encrypt = await takeTurns(bench, 64, [...sealing, ours].map((one) => ({ ...one, replay: store })));
  const page = replayOf('list', [{ method: 'GET', path: '/api/store?limit=100', headers }], '"secret":"');
  const list = await takeTurns({ ...bench, warmUp: 0 }, 64, [{ ...ours, replay: page }]);
  return {
    findings: [rateAgainst('encrypt, 64 clients', encrypt, 1.6), rateAgainst('decrypt, 64 clients', decrypt, 1.1)],
    figures: [['encrypt, 64 clients', encrypt], ['decrypt, 64 clients', decrypt], ['list, a page of 100 secrets, 64 clients', list]],
  };
}
