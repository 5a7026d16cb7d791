/**
 * JSON bodies as senders send them: compact and nested, with long member names, many addresses,
 * escapes and non-ASCII text. They are made from descriptions, and are the same in each run.
 */
import { createHash } from 'node:crypto';

const WORDS = [
  ...['archive', 'assignee', 'blob', 'branch', 'collaborator', 'comment', 'commit', 'compare'],
  ...['content', 'contributor', 'deployment', 'download', 'event', 'fork', 'hook', 'issue'],
  ...['key', 'label', 'language', 'merge', 'milestone', 'notification', 'pull', 'release'],
  ...['review', 'stargazer', 'status', 'subscriber', 'subscription', 'tag', 'team', 'tree'],
];
const wordOf = (at: number): string => WORDS[at % WORDS.length] ?? '';

const PROSE =
  'The export of “Ünïcödé” names fails with `"code":"E\\u0041"` since the last release 🙁\r\n\r\n' +
  '## Steps\r\n1. Open C:\\exports\\2026 and choose "Zürich – São Paulo"\r\n2. Wait\t(about 5 s)\r\n\r\n' +
  '```js\r\nthrow new Error("expected <a href=\\"/x\\">, got \'null\'");\r\n```\r\n';

/** A value of each kind. `at` counts the values of a body; `name` is that of the member. */
const VALUES = {
  id: (at: number) => 1_296_269_000 + at * 7_919,
  count: (at: number) => (at * 31) % 97,
  flag: (at: number) => at % 3 === 0,
  nothing: () => null,
  time: (at: number) => new Date(1_700_000_000_000 + at * 86_461_000).toISOString(),
  hash: (at: number) => createHash('sha1').update(String(at)).digest('hex'),
  url: (at: number, name: string) =>
    `https://api.example.com/repos/example-org/hello-world/${name}/${at}{/number}`,
  title: (at: number) => `${wordOf(at)} ${at % 8 === 0 ? 'of Zoë Krüger' : wordOf(at * 3)}`,
  prose: (at: number) => `${PROSE}${wordOf(at)}: ${PROSE}`,
};
type Kind = keyof typeof VALUES;
const KINDS = ['id', 'count', 'flag', 'nothing', 'time', 'hash', 'url', 'title', 'prose'] as const;

/** How many members of each kind an object has, and what is in it. */
interface Shape {
  readonly members: Readonly<Partial<Record<Kind, number>>>;
  readonly objects?: Readonly<Record<string, Shape>>;
  readonly lists?: Readonly<Record<string, readonly Shape[]>>;
}

const LINE: Shape = { members: { id: 1, title: 1, count: 2 } };
const PERSON: Shape = { members: { id: 1, title: 2, hash: 1, url: 11, flag: 1 } };
const NAME: Shape = { members: { title: 3 } };
const LABEL: Shape = { members: { id: 1, title: 2, url: 1, flag: 1 } };
const REPOSITORY: Shape = {
  members: { id: 1, title: 3, url: 32, time: 3, count: 9, flag: 12, nothing: 4 },
  objects: { owner: PERSON },
};
const COMMIT: Shape = {
  members: { hash: 2, title: 2, time: 1, url: 1, flag: 1 },
  objects: { author: NAME, committer: NAME },
};
const ISSUE: Shape = {
  members: { id: 2, title: 2, url: 8, time: 2, count: 8, flag: 2, nothing: 5, prose: 2 },
  objects: { user: PERSON, assignee: PERSON },
  lists: { labels: [LABEL, LABEL, LABEL] },
};
const BRANCH: Shape = {
  members: { title: 2, hash: 1 },
  objects: { user: PERSON, repository: REPOSITORY },
};

const INVOICE_PAID: Shape = {
  members: { id: 2, title: 3, time: 3, count: 4, flag: 3, url: 1, hash: 1 },
  objects: { customer: NAME },
  lists: { lines: [LINE, LINE] },
};
const PUSH: Shape = {
  members: { hash: 2, title: 1, flag: 3 },
  objects: { repository: REPOSITORY, sender: PERSON },
  lists: { commits: [COMMIT] },
};
const ISSUE_OPENED: Shape = {
  members: { count: 1 },
  objects: { issue: ISSUE, repository: REPOSITORY, sender: PERSON },
};
const PULL_REQUEST: Shape = {
  ...ISSUE,
  objects: { ...ISSUE.objects, head: BRANCH, base: BRANCH },
};
const PULL_REQUEST_OPENED: Shape = {
  members: { count: 1 },
  objects: { pull_request: PULL_REQUEST, repository: REPOSITORY, sender: PERSON },
};

const PAGE_ID = '5c0f3d43-7b1f-4c1e-9f0a-2d8c1b7a6e5f';

/** @param next counts the values */
function fill({ members, objects = {}, lists = {} }: Shape, next: () => number): object {
  const filled: Record<string, unknown> = {};
  for (const kind of KINDS) {
    for (let index = 0; index < (members[kind] ?? 0); index += 1) {
      const name = `${wordOf(index)}${index < WORDS.length ? '' : 's'}_${kind}`;
      filled[name] = VALUES[kind](next(), name);
    }
  }
  for (const [name, shape] of Object.entries(objects)) filled[name] = fill(shape, next);
  for (const [name, shapes] of Object.entries(lists)) {
    filled[name] = shapes.map((shape) => fill(shape, next));
  }
  return filled;
}

export interface Body {
  /** What it is, with its size. */
  readonly name: string;
  readonly text: string;
}

function bodyOf(event: string, shape: Shape): Body {
  let at = 0;
  const next = () => {
    at += 1;
    return at;
  };
  const text = JSON.stringify({ event, data: { page_id: PAGE_ID, ...fill(shape, next) } });
  return { name: `${event}, ${(Buffer.byteLength(text) / 1_024).toFixed(1)} KB`, text };
}

/** Events of the generic source. */
export const BODIES = {
  invoice: bodyOf('invoice paid', INVOICE_PAID),
  push: bodyOf('push', PUSH),
  issue: bodyOf('issue opened', ISSUE_OPENED),
  pullRequest: bodyOf('pull request opened', PULL_REQUEST_OPENED),
};
