import { existsSync } from 'node:fs';
import { readSchema, type SchemaState } from './store/diagnose.ts';
import { migrate } from '../platform/db/schema.ts';
import { configure, SERVICE_NAMES } from '../serve.ts';
import { readVersion } from '../platform/runtime/version.ts';
import { CHECK, withServices } from './check.ts';
import { COMMANDS as CONTROL_COMMANDS } from './control.ts';
import { type Command, flag, OperationFailed } from './command.ts';
import { counted } from './database.ts';

/** The commands that belong to no service. */
export const COMMANDS: readonly Command[] = [
  {
    name: 'migrate',
    positionals: '[SERVICE…]',
    acceptedPositionals: SERVICE_NAMES,
    summary: 'Bring the database schemas of the named services, or of all, up to date',
    options: { status: flag('only say which steps are missing; exit 1 if there are any') },
    async run(call) {
      const configuration = await configure(call.positionals, 'administer', call.environment);
      if (call.flag('status')) {
        const states = await withServices(
          configuration,
          call,
          async ({ storage }) => storage && readSchema(storage.database, storage.schema),
        );
        for (const [name, state] of states) if (state) call.print(`${name}: ${stateText(state)}`);
        const isPending = [...states.values()].some((state) => state && state.pending.length > 0);
        if (isPending)
          throw new OperationFailed('steps are missing; "gatehouse migrate" applies them');
        return;
      }
      const applied = await withServices(configuration, call, async ({ storage }) =>
        storage ? migrate(storage.database, storage.schema) : 0,
      );
      for (const [name, steps] of applied) {
        call.print(
          `${name}: ${steps === 0 ? 'is up to date' : `applied ${counted(steps, 'step')}`}`,
        );
      }
    },
  },
  CHECK,
  ...CONTROL_COMMANDS,
  {
    name: 'start',
    summary: 'Try all services with a PostgreSQL of their own; data and secrets are in ./.data',
    async run() {
      const file = new URL('../start/start-package.js', import.meta.url);
      if (!existsSync(file))
        throw new OperationFailed('only the npm package has "start"; use "make start" or "serve"');
      await import(file.href);
    },
  },
  {
    name: 'version',
    summary: 'Print the version',
    async run({ print }) {
      print(`gatehouse ${readVersion()} (Node ${process.versions.node})`);
    },
  },
];

function stateText({ applied, pending }: SchemaState) {
  const steps = `${counted(applied.length, 'step')} applied`;
  return pending.length === 0
    ? `is up to date, ${steps}`
    : `${steps}, missing: ${pending.join('; ')}`;
}
