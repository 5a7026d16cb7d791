/**
 * `node --import tsx scripts/openapi.ts`: writes docs/openapi/*.json, what each service answers at
 * `/openapi.json` with its pages and with default settings.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { start } from '../src/index.ts';

const SERVICES = ['identity', 'secrets', 'webhook'] as const;
const SECRET = 'only for the description of the interface';
/** Nothing listens at this address: the descriptions need no database. */
const DATABASE_URL = 'postgres://nobody@127.0.0.1:1/none';
const LISTENERS = Object.fromEntries(
  SERVICES.map((name) => name.toUpperCase()).flatMap((name) => [
    [`${name}_HOST`, '127.0.0.1'],
    [`${name}_PORT`, '0'],
  ]),
);

/** @returns the name of each service and its description, as the text of a file */
export async function describeServices(pages: 'on' | 'off' = 'on') {
  const gatehouse = await start({
    services: SERVICES,
    settings: {
      SIGNIN_PAGES: pages,
      SHARE_PAGES: pages,
      INBOX_PAGE: pages,
      ...LISTENERS,
      DATABASE_URL,
      SERVER_SECRET: SECRET,
      AUTH_TOKEN: SECRET.replaceAll(' ', '-'),
      LOG_LEVEL: 'silent',
    },
  });
  // Rejects at the stop, because the services never get ready.
  const stopped = gatehouse.ready.catch(() => {});
  const descriptions = SERVICES.map(async (name) => {
    const reply = await fetch(`http://127.0.0.1:${gatehouse.ports[name]}/openapi.json`);
    return [name, `${JSON.stringify(await reply.json(), null, 1)}\n`] as const;
  });
  try {
    return await Promise.all(descriptions);
  } finally {
    await gatehouse.stop();
    await stopped;
  }
}

if (process.argv[1] === import.meta.filename) {
  const folder = join(import.meta.dirname, '../docs/openapi');
  for (const [name, text] of await describeServices())
    writeFileSync(join(folder, `${name}.json`), text);
}
