/**
 * The clients of `make bench PART=flood`, in a child process. Each logs in with wrong passwords,
 * one request after the other. The first message from the parent starts them and is answered with
 * "started". The second one stops them and is answered with the rate of each status.
 */
import { createClient } from './service.ts';

export interface FloodOptions {
  readonly port: number;
  readonly clients: number;
  /** Every attempt uses the same existing name, or each one a new name. */
  readonly names: 'one' | 'new';
}
/** Replies per second by status. */
export type Rates = Readonly<Record<string, number>>;

let isOver = false;

async function runClient(
  number: number,
  { port, names }: FloodOptions,
  counts: Map<string, number>,
): Promise<void> {
  const { send, close } = createClient({ port });
  for (let attempt = 1; !isOver; attempt += 1) {
    const username = names === 'one' ? 'admin' : `nobody-${number}-${attempt}`;
    const body = JSON.stringify({ username, password: `wrong password ${attempt}` });
    const { status } = await send(
      'POST',
      '/api/auth/login',
      { 'content-type': 'application/json' },
      body,
    );
    if (!isOver) counts.set(String(status), (counts.get(String(status)) ?? 0) + 1);
  }
  close();
}

process.once('message', async (options: FloodOptions) => {
  const counts = new Map<string, number>();
  const startedAt = performance.now();
  process.once('message', () => {
    isOver = true;
    const seconds = (performance.now() - startedAt) / 1_000;
    process.send?.(
      Object.fromEntries([...counts].map(([status, count]) => [status, count / seconds])),
    );
  });
  process.send?.('started');
  await Promise.all(
    Array.from({ length: options.clients }, (_, number) => runClient(number, options, counts)),
  );
  process.disconnect();
});
