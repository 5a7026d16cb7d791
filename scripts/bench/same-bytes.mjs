// Compared with `/livez`: node:http alone, sending the headers and the body it is given.
import { createServer } from 'node:http';

const { headers, body, keepAliveSeconds, maxRequests } = JSON.parse(process.env.REPLY);
const options = { keepAliveTimeout: keepAliveSeconds * 1_000 };
const server = createServer(options, (_request, response) =>
  response.writeHead(200, headers).end(body),
);
server.maxRequestsPerSocket = maxRequests;
server.listen(0, '127.0.0.1', () => {
  console.log(
    JSON.stringify({ message: 'listening', service: 'same-bytes', port: server.address().port }),
  );
  console.log(JSON.stringify({ message: 'ready', service: 'same-bytes' }));
});
