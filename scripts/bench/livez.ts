/** A route that does no work, `/livez`, against bare node:http that sends the same bytes. */
import { Agent, get, type IncomingMessage } from 'node:http';
import { once } from 'node:events';
import { join } from 'node:path';
import { type Bench, rateAgainst, type Report, takeTurns } from './compare.ts';
import { writeRequests } from './load.ts';
import { type Service, startProgram, startServices } from './service.ts';

interface Sent {
  readonly headers: Array<[string, string]>;
  readonly body: string;
  /** On the wire, the head included. */
  readonly bytes: number;
}

async function fetchOnce({ port }: Service): Promise<Sent> {
  const agent = new Agent({ keepAlive: true });
  const [response]: IncomingMessage[] = await once(get({ agent, host: '127.0.0.1', port, path: '/livez' }), 'response');
  if (!response) throw new Error('no answer');
  // Before the end, when the connection is given back.
  const { rawHeaders, socket } = response;
  let body = '';
  for await (const part of response.setEncoding('utf8')) body += part;
  const headers = rawHeaders.flatMap((name, index): Array<[string, string]> => (index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? '']] : []));
  const sent = { headers, body, bytes: socket.bytesRead };
  agent.destroy();
  return sent;
}

/** Node writes these itself, the last one by the server's limits. */
const NODES_OWN = new Set(['date', 'connection', 'keep-alive']);

export async function livez(bench: Bench): Promise<Report> {
  const ours = await startServices(['identity'], bench.postgres.url);
  const sent = await fetchOnce(ours);
  const headers = Object.fromEntries(sent.headers.filter(([name]) => !NODES_OWN.has(name.toLowerCase())));
  const keepAlive = sent.headers.find(([name]) => name.toLowerCase() === 'keep-alive')?.[1] ?? '';
  const numberOf = (name: string) => Number(new RegExp(`${name}=(\\d+)`).exec(keepAlive)?.[1] ?? 0);
  const answer = JSON.stringify({ headers, body: sent.body, seconds: numberOf('timeout'), most: numberOf('max') });
  const bare = await startProgram([join(import.meta.dirname, 'answer.mjs')], ['answer'], { ANSWER: answer });
  const { bytes } = await fetchOnce(bare);
  if (bytes !== sent.bytes) throw new Error(`the same bytes are compared: bare node:http sends ${bytes}, and gatehouse ${sent.bytes}`);
  const replay = { file: writeRequests(join(bench.directory, 'livez'), [{ method: 'GET', path: '/livez' }]), status: 200, text: '"status":"alive"' };
  const figures = await takeTurns(bench, 64, [{ name: 'bare node:http, same bytes', service: bare, replay }, { name: 'gatehouse', service: ours, replay }]);
  return { findings: [rateAgainst('`/livez`', figures, 0.9)], figures: [[`\`/livez\`, 64 clients, ${bytes} bytes`, figures]] };
}
