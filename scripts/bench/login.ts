/** Logins at the default cost of a hash: how many a second, and at which memory. Several users, because each has a throttle of their own. */
import { join } from 'node:path';
import { type Bench, type Report, takeTurns } from './compare.ts';
import { writeRequests } from './load.ts';
import { createClient, PASSWORD, startServices } from './service.ts';

const USERS = 16;
const path = '/api/auth/login';

export async function login(bench: Bench): Promise<Report> {
  const ours = await startServices(['identity'], bench.postgres.url, { PASSWORD_HASHES: '2' });
  const { ask, close } = createClient(ours);
  const made = await ask('POST', path, {}, JSON.stringify({ username: 'admin', password: PASSWORD }));
  const { data }: { data: { session: string } | null } = JSON.parse(made.text);
  const users = Array.from({ length: USERS }, (_, number) => ({ username: `user-${number}`, password: `${PASSWORD}, number ${number}` }));
  for (const user of users) {
    const { status, text } = await ask('POST', '/api/user/', { authorization: `Bearer ${data?.session}` }, JSON.stringify({ ...user, email: `${user.username}@example.org` }));
    if (status !== 201) throw new Error(`a user is not made: ${status} ${text}`);
  }
  close();
  const file = writeRequests(join(bench.directory, 'login'), users.map((user) => ({ method: 'POST', path, body: JSON.stringify(user) })));
  // A hash takes a good part of a second where others work beside it.
  const longer = { ...bench, warmUp: 0, seconds: Math.max(2, bench.seconds) };
  const figures = await takeTurns(longer, 8, [{ name: 'gatehouse, PASSWORD_HASHES=2', service: ours, replay: { file, status: 200, text: '"session":"session:' } }]);
  return { findings: [], figures: [['login, 8 clients', figures]] };
}
