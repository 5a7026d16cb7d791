/**
 * Logins per second and memory at the default cost of a hash. Several users, because each has its
 * own throttle.
 */
import { join } from 'node:path';
import { compareRates, type Report } from './compare.ts';
import { type Replay, writeRequests } from './load.ts';
import { type Bench, measureRounds, openTargets, type Subject, type Target } from './measure.ts';
import { createClient, PASSWORD } from './service.ts';

const USERS = 16;
const path = '/api/auth/login';

const users = Array.from({ length: USERS }, (_, number) => {
  return { username: `user-${number}`, password: `${PASSWORD}, number ${number}` };
});

async function prepare({ service }: Target, directory: string): Promise<Replay> {
  const { send, close } = createClient(service);
  const reply = await send(
    'POST',
    path,
    {},
    JSON.stringify({ username: 'admin', password: PASSWORD }),
  );
  const { data }: { data: { session: string } | null } = JSON.parse(reply.text);
  const headers = { authorization: `Bearer ${data?.session}` };
  for (const user of users) {
    const body = JSON.stringify({ ...user, email: `${user.username}@example.org` });
    const { status, text } = await send('POST', '/api/user/', headers, body);
    if (status !== 201) throw new Error(`creating a user failed: ${status} ${text}`);
  }
  close();
  const requests = users.map((user) => ({ method: 'POST', path, body: JSON.stringify(user) }));
  return {
    file: writeRequests(join(directory, 'login'), requests),
    status: 200,
    text: '"session":"session:',
  };
}

export async function login(bench: Bench): Promise<Report> {
  const targets = await openTargets(bench, {
    name: 'login',
    service: 'identity',
    settings: { PASSWORD_HASHES: '2' },
  });
  const isAgainst = bench.builds.length > 1;
  const subjects: Subject[] = [];
  for (const target of isAgainst ? targets : targets.slice(0, 1)) {
    subjects.push({ ...target, replay: await prepare(target, bench.directory) });
  }
  // A hash may take a large part of a second on a busy machine.
  const longer = { ...bench, warmUp: 0, seconds: Math.max(4, bench.seconds) };
  const figures = await measureRounds(longer, 8, subjects);
  const caveat =
    'The cost is the intended cost of scrypt with 32 MiB. It does not say what a check of a session costs.';
  return {
    comparisons: isAgainst ? [compareRates('login, 8 clients', figures)] : [],
    tables: [{ heading: 'login, 8 clients, PASSWORD_HASHES=2', figures, caveat }],
  };
}
