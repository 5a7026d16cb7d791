/**
 * What replay.lua is to wrk, for where there is none: a worker thread with so many connections, on each one request after
 * the other, on bare sockets, because node:http as a client would cost more than what is measured. It knows answers with a
 * Content-Length, which all that are measured have. JavaScript, because tsx does not reach into worker threads.
 */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

const { port, clients, seconds, replay } = workerData;
const requests = readFileSync(replay.file, 'utf8').split('\0');
const times = [];
const result = { wrong: 0, firstWrong: '', socketErrors: 0 };
let sent = 0;
let isOver = false;

/** The first answer in these bytes and how long it is, or null while it is not whole. */
function answerIn(bytes) {
  const start = bytes.indexOf('\r\n\r\n') + 4;
  if (start === 3) return null;
  const head = bytes.toString('latin1', 0, start);
  const said = /\r\ncontent-length: *(\d+)\r\n/i.exec(head)?.[1];
  if (said === undefined) return { head, body: '(without a Content-Length)', length: bytes.length };
  const length = start + Number(said);
  return bytes.length < length ? null : { head, body: bytes.toString('utf8', start, length), length };
}

function client() {
  const socket = connect(port, '127.0.0.1').setNoDelay(true);
  let received = Buffer.alloc(0);
  let sentAt = 0;
  let isLast = false;
  const ask = () => {
    sentAt = performance.now();
    socket.write(requests[sent % requests.length]);
    sent += 1;
  };
  socket.on('connect', ask);
  socket.on('data', (part) => {
    received = received.length === 0 ? part : Buffer.concat([received, part]);
    const answer = answerIn(received);
    if (!answer || isOver) return;
    received = received.subarray(answer.length);
    times.push(performance.now() - sentAt);
    const status = Number(answer.head.slice(9, 12));
    if (status !== replay.status || !answer.body.includes(replay.text)) {
      result.wrong += 1;
      result.firstWrong ||= `${status} ${answer.body.slice(0, 500)}`;
    }
    // A server may take leave after so many requests; then there is another connection.
    isLast = /\r\nconnection: *close\r\n/i.test(answer.head);
    if (!isLast) ask();
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    if (isOver) return;
    if (!isLast) result.socketErrors += 1;
    // Not at once: a server that is gone would keep this thread from ever ending.
    setTimeout(client, isLast ? 0 : 10);
  });
}

const startedAt = performance.now();
for (let number = 0; number < clients; number += 1) client();
setTimeout(() => {
  isOver = true;
  const elapsed = (performance.now() - startedAt) / 1_000;
  times.sort((one, other) => one - other);
  const within = (share) => times[Math.floor(times.length * share)];
  parentPort.postMessage({ answers: times.length, seconds: elapsed, p50: within(0.5), p99: within(0.99), ...result });
  // What is still on its way is not counted, and not waited for.
  setImmediate(() => process.exit());
}, seconds * 1_000);
