// Compared with the start of Gatehouse: node:http alone.
import { createServer } from 'node:http';

const server = createServer((_request, response) => response.end('{"status":"alive"}'));
server.listen(Number(process.env.PORT), '127.0.0.1');
