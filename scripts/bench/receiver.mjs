/**
 * The target of deliveries, and node:http alone for the memory of an idle process. Replies 200 to
 * each POST, and to a GET with how many there were.
 */
import { createServer } from 'node:http';

let received = 0;
let firstAt = 0;
let lastAt = 0;
const server = createServer((request, response) => {
  if (request.method === 'GET') {
    response.end(JSON.stringify({ received, seconds: (lastAt - firstAt) / 1_000 }));
    received = 0;
    return;
  }
  lastAt = performance.now();
  if (received === 0) firstAt = lastAt;
  received += 1;
  request.resume().on('end', () => response.end());
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  console.log(
    JSON.stringify({ message: 'listening', service: 'receiver', port: server.address().port }),
  );
  console.log(JSON.stringify({ message: 'ready', service: 'receiver' }));
});
