/**
 * Imports modules and prints what they did meanwhile: which of them read a file, the environment or
 * a limit of memory, parsed a URL, or set a timer. A program of its own, because it replaces
 * functions of Node. Arguments: the folder of the modules, then their paths.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder = '', ...files] = process.argv.slice(2);
const own = pathToFileURL(folder).href;
const found = [];

/** Notes the caller, if it is one of the modules. */
function note(what) {
  const [caller = ''] = (new Error().stack ?? '').split('\n').slice(3);
  const [, file] = /(file:[^)]*):\d+:\d+/.exec(caller) ?? [];
  if (file?.startsWith(own)) found.push(`${file.slice(own.length + 1)}: ${what}`);
}

const noting = (what, target) =>
  new Proxy(target, {
    apply: (...call) => {
      note(what);
      return Reflect.apply(...call);
    },
    construct: (...call) => {
      const [, values] = call;
      // The name of a file beside the module is no work.
      if (values.length === 1) note(what);
      return Reflect.construct(...call);
    },
  });

for (const name of ['readFileSync', 'existsSync', 'statSync', 'readdirSync', 'openSync'])
  fs[name] = noting(name, fs[name]);
syncBuiltinESMExports();
globalThis.URL = noting('URL', URL);
for (const name of ['setTimeout', 'setInterval', 'setImmediate'])
  globalThis[name] = noting(name, globalThis[name]);
process.constrainedMemory = noting('constrainedMemory', process.constrainedMemory);
const environment = process.env;
Object.defineProperty(process, 'env', {
  get() {
    note('env');
    return environment;
  },
});

for (const file of files) await import(pathToFileURL(file).href);
process.stdout.write(JSON.stringify(found));
// A worker thread of a module may wait for messages.
process.exit();
