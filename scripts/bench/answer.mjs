// What `/livez` is compared with: node:http and nothing else, which sends the headers and the body that it is told to.
import { createServer } from 'node:http';

const { headers, body, seconds, most } = JSON.parse(process.env.ANSWER);
const server = createServer({ keepAliveTimeout: seconds * 1_000 }, (_request, response) => response.writeHead(200, headers).end(body));
server.maxRequestsPerSocket = most;
server.listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ message: 'listening', service: 'answer', port: server.address().port }));
  console.log(JSON.stringify({ message: 'ready', service: 'answer' }));
});
