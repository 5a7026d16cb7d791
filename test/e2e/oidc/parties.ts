/** Programs of others at which people sign in: libraries, each in a small program, and Apache. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { makeDirectory } from '../../support/directories.ts';
import type { Owner } from '../../support/owner.ts';
import { start } from '../programs.ts';
import { addPackages } from '../tools.ts';

/** The packages that programs need. */
export const DEBIAN = [
  ...['apache2', 'libapache2-mod-auth-openidc'],
  ...['golang-go', 'golang-github-coreos-go-oidc-dev', 'golang-golang-x-oauth2-dev'],
  ...['python3-flask', 'python3-requests', 'python3-authlib'],
  ...['python3-social-auth-core', 'python3-jose'],
  ...['ruby-omniauth-openid-connect', 'ruby-rack', 'ruby-webrick'],
] as const;

/** The addresses of a program, without its origin. */
const PATHS = {
  login: '/login',
  callback: '/callback',
  /** Asks the provider what it may know of the person, with the access token. */
  ask: '/',
  /** Fetches other tokens with the refresh token; empty where the library cannot. */
  refresh: '',
  logout: '/logout',
  loggedOut: '/out',
};
type Paths = Readonly<typeof PATHS>;

export interface Party {
  /** Of npm or Debian, for its version. */
  readonly package: string;
  /** A file of `parties/`; without one, Apache. */
  readonly file?: string;
  readonly paths?: Partial<Paths>;
  /** More options of `client create`. */
  readonly options?: readonly string[];
  /** Where it is told that a session has ended, and a page for which it asks nobody. */
  readonly backchannel?: Readonly<Record<'told' | 'page', string>>;
}

const REFRESH = { refresh: '/refresh' };
const APP = '/app/';

export const PARTIES: Readonly<Record<string, Party>> = {
  mod_auth_openidc: {
    package: 'libapache2-mod-auth-openidc',
    paths: {
      ...{ login: APP, ask: APP, refresh: APP, callback: '/app/redirect' },
      logout: '/app/redirect?logout=',
    },
    backchannel: { told: '/app/redirect?logout=backchannel', page: '/quiet/' },
  },
  'go-oidc': {
    package: 'golang-github-coreos-go-oidc-dev',
    file: 'go-oidc.go',
    options: ['--without-pkce'],
    paths: REFRESH,
  },
  Authlib: { package: 'python3-authlib', file: 'flask-authlib.py', paths: REFRESH },
  'social-core': {
    package: 'python3-social-auth-core',
    file: 'social-core.py',
    options: ['--without-pkce'],
    paths: REFRESH,
  },
  omniauth_openid_connect: {
    package: 'ruby-omniauth-openid-connect',
    file: 'omniauth.rb',
    options: ['--without-pkce'],
    paths: { ...REFRESH, callback: '/auth/openid_connect/callback' },
  },
  'openid-client': { package: 'openid-client', file: 'openid-client.mjs', paths: REFRESH },
  'oidc-client-ts': {
    package: 'oidc-client-ts',
    file: 'oidc-client-ts.mjs',
    options: ['--public'],
    paths: REFRESH,
  },
  'Auth.js': {
    package: '@auth/core',
    file: 'auth-js.mjs',
    paths: { callback: '/auth/callback/gatehouse' },
  },
  'passport-openidconnect': {
    package: 'passport-openidconnect',
    file: 'passport.mjs',
    options: ['--without-pkce'],
  },
  'express-openid-connect': {
    package: 'express-openid-connect',
    file: 'express-openid-connect.mjs',
    paths: REFRESH,
    backchannel: { told: '/backchannel-logout', page: '/quiet' },
  },
};

/** @returns a directory with the programs */
export function copyParties(owner: Owner): string {
  const directory = makeDirectory(owner, 'parties');
  cpSync(join(import.meta.dirname, 'parties'), directory, { recursive: true });
  return directory;
}

/** The same, with the libraries of npm beside them. */
export function installParties(owner: Owner): string {
  const directory = copyParties(owner);
  const names = Object.values(PARTIES).map((party) => party.package);
  const libraries = names.filter((name) => !/^(python3|ruby|golang|lib)/.test(name));
  const more = ['express', 'express-session', 'passport'];
  const { code, output } = addPackages(directory, ...libraries, ...more);
  assert.equal(code, 0, output);
  return directory;
}

export function versionOf(directory: string, name: string): string {
  const { status, stdout } = spawnSync('dpkg-query', ['-W', '-f', '${Version}', name]);
  if (status === 0) return String(stdout);
  const manifest = readFileSync(join(directory, 'node_modules', name, 'package.json'), 'utf8');
  return JSON.parse(manifest).version;
}

/** How a program of its kind begins. */
function commandOf(directory: string, file: string): [string, ...string[]] {
  const path = join(directory, file);
  if (file.endsWith('.mjs')) return [process.execPath, path];
  // Not that of a version manager, which has not the packages of Debian.
  if (file.endsWith('.py')) return ['/usr/bin/python3', path];
  if (file.endsWith('.rb')) return ['/usr/bin/ruby', path];
  const built = join(directory, 'go-oidc');
  const env = {
    PATH: process.env.PATH,
    HOME: directory,
    GO111MODULE: 'off',
    GOPATH: '/usr/share/gocode',
    GOCACHE: join(directory, 'go-cache'),
  };
  execFileSync('/usr/bin/go', ['build', '-o', built, path], { env });
  return [built];
}

/** What a program is told of its provider. */
export type Settings = Readonly<Record<'ISSUER' | 'CLIENT_ID' | 'CLIENT_SECRET' | 'SCOPE', string>>;

export const pathsOf = ({ paths }: Party): Paths => ({ ...PATHS, ...paths });

/** @param directory of the installed programs. @returns its origin */
export async function startParty(
  owner: Owner,
  directory: string,
  { file }: Party,
  settings: Settings,
): Promise<string> {
  const { port } = await start(owner, {
    name: 'party',
    // Apache does not serve as root.
    unprivileged: file === undefined,
    prepare(own, port) {
      const env = { ...settings, PORT: String(port), PATH: process.env.PATH ?? '', OWN: own };
      if (file !== undefined) return { command: commandOf(directory, file), env };
      for (const part of ['apache.conf', 'claims.html'])
        copyFileSync(join(directory, part), join(own, part));
      const words = ['-f', join(own, 'apache.conf'), '-D', 'FOREGROUND'];
      return { command: ['/usr/sbin/apache2', ...words], env };
    },
  });
  return `http://127.0.0.1:${port}`;
}
