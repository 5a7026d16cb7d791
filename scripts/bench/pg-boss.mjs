/**
 * Delivers jobs with pg-boss, which must be installed in DIRECTORY.
 *
 *   node pg-boss.mjs DIRECTORY TARGET
 *
 * POST / with a body adds it as a job as often as ?count says. POST /work begins to deliver, and
 * POST /rest ends it.
 */
import { Agent, createServer, request as httpRequest } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

const QUEUE = 'events';
/** As many attempts at a time as Gatehouse makes by default, in each of so many workers. */
const BATCH = 10;
const WORKERS = 10;
const SHORTEST_POLL_SECONDS = 0.5;

const [directory = '', target = ''] = process.argv.slice(2);
const PgBoss = createRequire(join(directory, 'package.json'))('pg-boss');
const boss = new PgBoss(process.env.DATABASE_URL);
boss.on('error', (error) => console.error(error));
await boss.start();
await boss.createQueue(QUEUE);

const agent = new Agent({ keepAlive: true });
const post = (body) =>
  new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    const sent = httpRequest(target, { method: 'POST', agent, headers }, (response) => {
      response.resume().on('end', () => {
        if (response.statusCode === 200) resolve();
        else reject(new Error(`status ${response.statusCode}`));
      });
    });
    sent.on('error', reject).end(JSON.stringify(body));
  });

async function work() {
  const options = { batchSize: BATCH, pollingIntervalSeconds: SHORTEST_POLL_SECONDS };
  const deliver = (jobs) => Promise.all(jobs.map(({ data }) => post(data)));
  for (let worker = 0; worker < WORKERS; worker += 1) await boss.work(QUEUE, options, deliver);
}

async function fill(data, count) {
  const jobs = Array.from({ length: count }, () => ({ name: QUEUE, data }));
  for (let at = 0; at < count; at += 500) await boss.insert(jobs.slice(at, at + 500));
}

const server = createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost');
  if (pathname === '/work') await work();
  else if (pathname === '/rest') await boss.offWork(QUEUE);
  else await fill(JSON.parse(await text(request)), Number(searchParams.get('count')));
  response.end();
});
process.on('SIGINT', () => process.exit());
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address();
  console.log(JSON.stringify({ message: 'listening', service: 'pg-boss', port }));
  console.log(JSON.stringify({ message: 'ready', service: 'pg-boss' }));
});
