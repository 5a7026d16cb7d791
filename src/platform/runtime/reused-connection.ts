import type { ClientRequest } from 'node:http';

/**
 * A server may close a kept connection just before the next request arrives (RFC 9112, 9.3.1).
 * @returns tells, once the request has failed, whether that was the reason: the connection had
 * served another request, and no byte of a reply came
 */
export function watchReuse(request: ClientRequest) {
  let received = 0;
  request.once('socket', ({ bytesRead }) => {
    received = bytesRead;
  });
  return () => request.reusedSocket && request.socket?.bytesRead === received;
}
