import type { SecureContext } from 'node:tls';
import { number, type Values } from '../runtime/variables.ts';

// Settings are read before the driver is loaded, so this file does not import it.
export const SSL_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full'] as const;
export const TARGETS = ['any', 'read-write', 'primary'] as const;

/** A name that begins with "/" is the directory of a Unix socket. */
export type Host = Readonly<{ name: string; port: number }>;

export type DatabaseUrl = Readonly<{
  hosts: readonly Host[];
  database: string;
  user: string;
  password: string;
  applicationName: string;
  /** As in libpq: `prefer` encrypts if the server can, `require` insists, `verify-*` also check the certificate. */
  sslmode: (typeof SSL_MODES)[number];
  certificates: SecureContext | null; // null: Node's certificate authorities, and no certificate of the client
  target: (typeof TARGETS)[number];
  connectSeconds: number; // for each host
}>;

export const DATABASE_LIMITS = {
  // in seconds
  DATABASE_STATEMENT_TIMEOUT: number(10, 1, 300), // the server ends a statement, and an idle transaction
  DATABASE_LOCK_TIMEOUT: number(10, 1, 300), // a call that waits for a lock fails
  DATABASE_DEAD_AFTER: number(15, 2, 600), // a connection is closed if nothing arrives while a reply is due
} as const;

export type DatabaseAddress = DatabaseUrl & { readonly limits: Values<typeof DATABASE_LIMITS> };

/** A placeholder, so that the other settings are checked too. */
export const NO_DATABASE: DatabaseUrl = {
  hosts: [],
  database: '',
  user: '',
  password: '',
  applicationName: '',
  sslmode: 'disable',
  certificates: null,
  target: 'any',
  connectSeconds: 0,
};

export const isThisHost = (host: string): boolean =>
  host.startsWith('/') || ['localhost', '127.0.0.1', '::1'].includes(host);

export const hostList = (hosts: readonly Host[]): string =>
  hosts.map(({ name, port }) => `${name}:${port}`).join();
