/**
 * The counterpart of replay.lua where wrk is not installed: a worker thread with one request at a
 * time on each of its connections. It uses bare sockets, because node:http as a client would cost
 * more than what is measured. Replies must have a Content-Length. This is JavaScript, because tsx
 * does not apply to worker threads.
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

/** @returns the first reply in these bytes and its length, or null if it is not complete */
function parseReply(bytes) {
  const start = bytes.indexOf('\r\n\r\n') + 4;
  if (start === 3) return null;
  const head = bytes.toString('latin1', 0, start);
  const contentLength = /\r\ncontent-length: *(\d+)\r\n/i.exec(head)?.[1];
  if (contentLength === undefined)
    return { head, body: '(without a Content-Length)', length: bytes.length };
  const length = start + Number(contentLength);
  return bytes.length < length
    ? null
    : { head, body: bytes.toString('utf8', start, length), length };
}

function openConnection() {
  const socket = connect(port, '127.0.0.1').setNoDelay(true);
  let received = Buffer.alloc(0);
  let sentAt = 0;
  let isLast = false;
  const send = () => {
    sentAt = performance.now();
    socket.write(requests[sent % requests.length]);
    sent += 1;
  };
  socket.on('connect', send);
  socket.on('data', (chunk) => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const reply = parseReply(received);
    if (!reply || isOver) return;
    received = received.subarray(reply.length);
    times.push(performance.now() - sentAt);
    const status = Number(reply.head.slice(9, 12));
    if (status !== replay.status || !reply.body.includes(replay.text)) {
      result.wrong += 1;
      result.firstWrong ||= `${status} ${reply.body.slice(0, 500)}`;
    }
    // A server may close a connection after a number of requests; another one replaces it.
    isLast = /\r\nconnection: *close\r\n/i.test(reply.head);
    if (!isLast) send();
  });
  socket.on('error', () => {});
  socket.on('close', () => {
    if (isOver) return;
    if (!isLast) result.socketErrors += 1;
    // With a delay: reconnecting at once to a server that is gone would keep this thread busy.
    setTimeout(openConnection, isLast ? 0 : 10);
  });
}

const startedAt = performance.now();
for (let number = 0; number < clients; number += 1) openConnection();
setTimeout(() => {
  isOver = true;
  const elapsed = (performance.now() - startedAt) / 1_000;
  times.sort((one, other) => one - other);
  const percentile = (share) => times[Math.floor(times.length * share)];
  const latencies = { p50: percentile(0.5), p99: percentile(0.99) };
  parentPort.postMessage({ requests: times.length, seconds: elapsed, ...latencies, ...result });
  // Requests in flight are not counted and not awaited.
  setImmediate(() => process.exit());
}, seconds * 1_000);
