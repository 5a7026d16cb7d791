/**
 * The clients of `make bench-flood`, in a process of their own: they log in with wrong passwords, each again as soon as
 * it is answered. The parent process says which kind and when to stop, and is told when it starts and how often each status
 * came.
 */
import { createClient } from './service.ts';

export interface Orders {
  readonly port: number;
  readonly clients: number;
  /** Everyone tries one name that exists, or each time a new one. */
  readonly names: 'one' | 'new';
}
/** How often each status came, per second. */
export type Rates = Readonly<Record<string, number>>;

let isOver = false;

async function client(number: number, { port, names }: Orders, counts: Map<string, number>): Promise<void> {
  const { ask, close } = createClient({ port });
  for (let attempt = 1; !isOver; attempt += 1) {
    const username = names === 'one' ? 'admin' : `nobody-${number}-${attempt}`;
    const { status } = await ask('POST', '/api/auth/login', { 'content-type': 'application/json' }, JSON.stringify({ username, password: `wrong password ${attempt}` }));
    if (!isOver) counts.set(String(status), (counts.get(String(status)) ?? 0) + 1);
  }
  close();
}

process.once('message', async (orders: Orders) => {
  const counts = new Map<string, number>();
  const startedAt = performance.now();
  process.once('message', () => {
    isOver = true;
    const seconds = (performance.now() - startedAt) / 1_000;
    process.send?.(Object.fromEntries([...counts].map(([status, count]) => [status, count / seconds])));
  });
  process.send?.('started');
  await Promise.all(Array.from({ length: orders.clients }, (_, number) => client(number, orders, counts)));
  process.disconnect();
});
