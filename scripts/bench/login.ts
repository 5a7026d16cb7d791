/** Logins per second and memory at the default cost of a hash. Several users, because each has its own throttle. */
import { join } from 'node:path';
import { type Bench, measureRounds, type Report } from './compare.ts';
import { writeRequests } from './load.ts';
import { createClient, PASSWORD, startServices } from './service.ts';

const USERS = 16;
const path = '/api/auth/login';

export async function login(bench: Bench): Promise<Report> {
  const service = await startServices(['identity'], bench.postgres.url, { PASSWORD_HASHES: '2' });
  const { send, close } = createClient(service);
  const reply = await send('POST', path, {}, JSON.stringify({ username: 'admin', password: PASSWORD }));
  const { data }: { data: { session: string } | null } = JSON.parse(reply.text);
  const headers = { authorization: `Bearer ${data?.session}` };
  const users = Array.from({ length: USERS }, (_, number) => {
    return { username: `user-${number}`, password: `${PASSWORD}, number ${number}` };
  });
  for (const user of users) {
    const body = JSON.stringify({ ...user, email: `${user.username}@example.org` });
    const { status, text } = await send('POST', '/api/user/', headers, body);
    if (status !== 201) throw new Error(`creating a user failed: ${status} ${text}`);
  }
  close();
  const requests = users.map((user) => ({ method: 'POST', path, body: JSON.stringify(user) }));
  const file = writeRequests(join(bench.directory, 'login'), requests);
  const replay = { file, status: 200, text: '"session":"session:' };
  // A hash may take a large part of a second on a busy machine.
  const longer = { ...bench, warmUp: 0, seconds: Math.max(2, bench.seconds) };
  const figures = await measureRounds(longer, 8, [{ name: 'gatehouse, PASSWORD_HASHES=2', service, replay }]);
  return { comparisons: [], figures: [['login, 8 clients', figures]] };
}
