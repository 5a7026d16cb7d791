import { StartupError } from './runtime/errors.ts';

type Address = Readonly<{ name: string; host: string; port: number }>;

/** What the operator can do about a listener that did not open. Loaded only then. */
export function listenError(code: string, { name, host, port }: Address): StartupError {
  return new StartupError(
    `${name} cannot listen on ${host}:${port} (${code}): ${advice(code, { name, host, port })}.`,
  );
}

function advice(code: string, { name, host, port }: Address): string {
  const variable = `Set ${name.toUpperCase()}`;
  if (code === 'EADDRINUSE') return `port ${port} is in use. ${variable}_PORT`;
  if (code === 'EACCES')
    return `this user may not use port ${port}. ${variable}_PORT to a port above 1023`;
  if (code === 'EADDRNOTAVAIL')
    return `this machine does not have the address ${host}. ${variable}_HOST`;
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN')
    return `the name ${host} has no address. ${variable}_HOST`;
  return `${variable}_HOST and ${name.toUpperCase()}_PORT`;
}
