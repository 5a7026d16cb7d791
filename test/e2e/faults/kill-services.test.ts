/** kill -9 of each service, in turn. */
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
