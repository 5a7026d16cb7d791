import { readFile } from 'node:fs/promises';
import { type Command, flag, type Invocation, OperationFailed } from './command.ts';
import { inIdentity } from './users.ts';
import type { Database } from '../platform/db/pool.ts';
import { Failure } from '../platform/http/route/errors.ts';
import { validate } from '../platform/http/route/schema.ts';
import { splitList } from '../platform/runtime/env.ts';
import { codeOf } from '../platform/runtime/errors.ts';
import { decodeUtf8 } from '../platform/runtime/text.ts';
import { importedUser, importUser } from '../identity/import.ts';
import { accountKey } from '../identity/names.ts';
import type { Portal } from '../identity/settings.ts';
import { createLink } from '../identity/signin/links.ts';

export const IMPORT_COMMANDS: readonly Command[] = [
  {
    name: 'user import',
    summary: 'Create the users of a file of JSON lines or CSV; users who exist stay unchanged',
    positionals: 'FILE',
    options: {
      'dry-run': flag('only name each line that would fail'),
      invite: flag('print a link for each user without a hash of PBKDF2 or scrypt'),
    },
    async run(call) {
      const lines = linesOf(await readText(call.first));
      await inIdentity(call, (database, { portal }) => importAll(call, lines, database, portal));
    },
  },
];

/** Works on every line, whatever is wrong with others. @throws OperationFailed if any failed */
async function importAll(
  call: Invocation,
  lines: readonly Line[],
  database: Database,
  portal: Portal | null,
) {
  const invites = call.flag('invite');
  const isDryRun = call.flag('dry-run');
  if (invites && !portal) {
    throw new OperationFailed('a link opens a sign-in page; set SIGNIN_PAGES=on and SIGNIN_ORIGIN');
  }
  const counts = { imported: 0, invited: 0, present: 0, failed: 0 };
  const earlier = new Map<string, number>();
  for (const { at, value } of lines) {
    const invitation = invites && portal ? createLink(portal) : null;
    const user = value instanceof Failure ? value : checkedUser(value, earlier);
    const done =
      user instanceof Failure ? user : await importUser(database, user, invitation, isDryRun);
    if (done instanceof Failure) {
      counts.failed += 1;
      call.note(`line ${at}: ${problemOf(done)}`);
    } else if (!(user instanceof Failure)) {
      counts[done] += 1;
      for (const name of namesOf(user)) earlier.set(name, at);
      const isShown = done === 'invited' && !isDryRun;
      if (isShown && invitation) call.print(`${user.email} ${invitation.link}`);
    }
  }
  const { imported, invited, present, failed } = counts;
  const dry = isDryRun ? 'Dry run, nothing is stored. ' : '';
  call.note(
    `${dry}New users: ${imported + invited}, ${invited} of them with a link; existing users, left unchanged: ${present}.`,
  );
  if (failed === 0) return;
  throw new OperationFailed(
    `${failed} of ${lines.length} lines failed; correct them, and import the file again`,
  );
}

const namesOf = (user: Readonly<{ username: string; email: string }>) => [
  accountKey(user.username),
  accountKey(user.email),
];

/** @param earlier the lines that have used a name or address */
function checkedUser(value: unknown, earlier: ReadonlyMap<string, number>) {
  const user = validate(importedUser, value, 'invalid_body');
  if (user instanceof Failure) return user;
  const taken = namesOf(user).find((name) => earlier.has(name));
  if (taken === undefined) return user;
  return failure(
    `has the username or e-mail address of line ${earlier.get(taken)}; remove one of them`,
  );
}

const failure = (message: string) => new Failure('invalid_body', { message });

const problemOf = ({ details: { fields = [], message } }: Failure) =>
  fields.map(({ path, message }) => `${path.slice(1)} ${message}`).join('; ') || message;

async function readText(file: string) {
  try {
    return decodeUtf8(await readFile(file)).replace(/^\ufeff/, '');
  } catch (error) {
    const reason = error instanceof TypeError ? 'it is not UTF-8; convert it first' : codeOf(error);
    throw new OperationFailed(`${file} cannot be read: ${reason}`);
  }
}

/** A line of the file, counted from 1, and what it holds, or why it holds nothing. */
type Line = Readonly<{ at: number; value: unknown }>;

/** JSON lines begin with a brace. */
const linesOf = (text: string) => (/^\s*\{/.test(text) ? jsonLines(text) : csvLines(text));

const jsonLines = (text: string): Line[] =>
  text.split('\n').flatMap((line, index) => {
    if (line.trim() === '') return [];
    try {
      return { at: index + 1, value: JSON.parse(line) };
    } catch {
      return { at: index + 1, value: failure('is not a JSON object; write each user on one line') };
    }
  });

/** With the names of members in the first line (RFC 4180). An empty cell is a missing member. */
function csvLines(text: string): Line[] {
  const [head, ...rows] = csvRows(text);
  const names = head?.cells ?? [];
  checkColumns(names);
  return rows.map(({ at, cells }) => ({ at, value: valueOf(names, cells) }));
}

type Cells = ReadonlyArray<string | null>;

/**
 * @throws OperationFailed: with a wrong first line, all others would fail, or mean something else
 */
function checkColumns(names: Cells) {
  const { properties = {}, required = [] } = importedUser.jsonSchema;
  const known = Object.keys(properties);
  const isKnown = (name: string | null) => name !== null && known.includes(name);
  const isEachOnce = new Set(names).size === names.length;
  const hasNeeded = required.every((name) => names.includes(name));
  if (names.every(isKnown) && isEachOnce && hasNeeded) return;
  // Not what it is: without names, the line may have the hash of a password.
  throw new OperationFailed(
    `line 1 must be a JSON object, or name each column once: ${known.join(', ')}; ${required.join(' and ')} are required`,
  );
}

function valueOf(names: Cells, cells: Cells) {
  if (cells.length !== names.length) {
    return failure(
      `has ${cells.length} cells, but line 1 has ${names.length}; leave a cell empty, not out`,
    );
  }
  if (cells.includes(null))
    return failure('has a quotation mark in a cell; quote the cell, and double each mark in it');
  return Object.fromEntries(
    names.map((name, column) => [name, memberOf(name, cells[column] ?? '')]),
  );
}

/** Other texts stay as they are, and are rejected by the schema. */
const BOOLEANS = new Map([
  ['true', true],
  ['false', false],
]);

function memberOf(name: string | null, cell: string) {
  if (cell === '') return undefined;
  if (name === 'groups') return splitList(cell);
  if (name === 'enabled' || name === 'verified') return BOOLEANS.get(cell.toLowerCase()) ?? cell;
  return cell;
}

/** A quoted cell may hold commas, line ends and doubled quotes. */
const CELL = /("(?:[^"]|"")*"(?=[,\r\n]|$)|[^,\r\n]*)(,|\r?\n|$)/g;

/** Without blank lines. A cell with a broken quote is null. */
function csvRows(text: string) {
  const rows: Array<Readonly<{ at: number; cells: Cells }>> = [];
  let cells: Array<string | null> = [];
  let at = 1;
  let next = 1;
  for (const [all, cell = '', end] of text.matchAll(CELL)) {
    cells.push(contentOf(cell));
    next += all.split('\n').length - 1;
    if (end === ',') continue;
    if (cells.length > 1 || cell !== '') rows.push({ at, cells });
    cells = [];
    at = next;
  }
  return rows;
}

function contentOf(cell: string) {
  const quoted = /^"(.*)"$/s.exec(cell)?.[1];
  if (quoted !== undefined) return quoted.replaceAll('""', '"');
  return cell.includes('"') ? null : cell;
}
