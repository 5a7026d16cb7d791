/** kill -9 of each service, of a database connection, and of PostgreSQL as a whole. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expectFailures, scenario } from './scenario.ts';
import { SERVICES } from './system.ts';

const KILLS = 3;

scenario('kill -9 of services', async (fault) => {
  const { system, load, random } = fault;
  await expectFailures(fault, async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      for (const service of SERVICES) {
        await sleep(random() * 700);
        await system.killService(service);
      }
      await load.progress(20);
    }
  });
});

scenario('kill -9 of PostgreSQL and of its connections', async (fault) => {
  const { database, load, random } = fault;
  await expectFailures(fault, async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      await sleep(random() * 500);
      await database.killConnection('gatehouse-');
      await load.progress(20);
      await sleep(random() * 500);
      await database.kill();
      await sleep(random() * 500);
      await database.start();
      await load.progress(20);
    }
  });
});
