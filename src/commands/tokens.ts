import { randomUUID } from 'node:crypto';
import {
  choice,
  type Command,
  type Invocation,
  json,
  OperationFailed,
  option,
  type Terminal,
  UsageError,
} from './command.ts';
import { type InService, requireUuid } from './database.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import { readDuration } from './terminal.ts';
import { randomToken, sha256 } from '../platform/crypto/token.ts';
import { type NewToken, replaceToken, revokeToken } from '../platform/db/tokens.ts';

/** What differs between the tokens of two services. */
type TokenGroup = Readonly<{
  name: string; // the words before `create`
  noun: string; // for the help
  schema: string;
  prefix: string; // of each token
  roles: string; // the help of --role
  createOptions?: Command['options'];
  rotateOptions?: Command['options'];
  inService: InService;
  /** Prints all. */
  list: (call: Invocation) => Promise<void>;
  /** Stores a token. */
  create: (call: Invocation, token: NewToken) => Promise<void>;
  /**
   * Replaces a signing secret, if an option asks for this, instead of the token.
   * @returns whether there is an active token with this id; undefined without the option
   */
  rotateSecret?: (call: Invocation, id: string, overlap: number) => Promise<boolean | undefined>;
}>;

/** The commands that create, list, replace and revoke the tokens of a service. */
export const tokenCommands = (group: TokenGroup): readonly Command[] => [
  createCommand(group),
  {
    name: `${group.name} list`,
    summary: `List each ${group.noun}, oldest first, without the token itself`,
    options: { json },
    run: group.list,
  },
  rotateCommand(group),
  {
    name: `${group.name} revoke`,
    positionals: 'ID',
    summary: `Revoke a ${group.noun} at once, on every replica`,
    async run(call) {
      const id = requireUuid(call.first, ` from gatehouse ${group.name} list`);
      const isKnown = await group.inService(call, (database) =>
        revokeToken(database, group.schema, id),
      );
      if (!isKnown)
        throw new OperationFailed(`no token has this id; see: gatehouse ${group.name} list`);
      return `Revoked token ${id}.`;
    },
  },
];

export function readName(call: Invocation) {
  const name = (call.text('name') ?? '').trim();
  const isName = name.length <= 255 && !/\p{C}/u.test(name);
  if (!isName) throw new UsageError('--name takes at most 255 printable characters');
  return name;
}

const createCommand = (group: TokenGroup): Command => ({
  name: `${group.name} create`,
  summary: `Create a ${group.noun} and print it once`,
  options: {
    name: option('NAME', 'whose token it is; default empty'),
    role: option('ROLE', group.roles),
    ...group.createOptions,
  },
  async run(call) {
    const name = readName(call);
    const role = choice(call, 'role', ['sender', 'operator']) ?? 'sender';
    const id = randomUUID();
    const token = group.prefix + randomToken();
    await group.create(call, {
      id,
      name,
      role,
      digest: sha256(token),
    });
    call.note(`Created token "${name}" with id ${id}.`);
    printToken(call, token);
  },
});

const rotateCommand = (group: TokenGroup): Command => ({
  name: `${group.name} rotate`,
  positionals: 'ID',
  summary: `Replace a ${group.noun}; the old one stays valid for a while`,
  options: {
    overlap: option(
      'TIME',
      'how long the old one stays valid: seconds, or such as 30m, 24h, 7d or 1w; default 24h',
    ),
    ...group.rotateOptions,
  },
  async run(call) {
    const id = requireUuid(call.first, ` from gatehouse ${group.name} list`);
    const overlap = readDuration(call, 'overlap') ?? DAY_SECONDS;
    const reportReplaced = (isFound: boolean, what: string) => {
      if (!isFound)
        throw new OperationFailed(`no active token has this id; see: gatehouse ${group.name} list`);
      call.note(`Replaced ${what} ${id}. The old one stays valid for ${overlap} seconds.`);
    };
    const isSecretReplaced = await group.rotateSecret?.(call, id, overlap);
    if (isSecretReplaced !== undefined)
      return reportReplaced(isSecretReplaced, 'the signing secret of token');
    const token = group.prefix + randomToken();
    const isReplaced = await group.inService(call, (database) =>
      replaceToken(database, group.schema, id, sha256(token), overlap),
    );
    reportReplaced(isReplaced, 'token');
    printToken(call, token);
  },
});

function printToken({ note, print }: Terminal, token: string) {
  note('Token (shown only once):');
  print(token);
}
