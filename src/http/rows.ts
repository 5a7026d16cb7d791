import type { Failure } from './errors.ts';
import { livez } from './builtin.ts';
import type { Reply, Route, Visitor } from './call.ts';
import { createRouter } from './router.ts';

/** Finds the row for a method and a path. */
export type Rows = ReturnType<typeof createRouter<Bound>>;

/** A row with its service folded in, so that a listener need not know of what kind that is. */
interface Bound extends Pick<Route<unknown>, 'method' | 'pattern' | 'success'> {
  /** Method and pattern, as the log and the numbers have it. */
  readonly name: string;
  answer(visitor: Visitor, readBody: () => Promise<Buffer | Failure>): Promise<Reply<unknown> | Failure>;
}

export const bind = <Service>(routes: ReadonlyArray<Route<Service>>, service: Service): Rows =>
  createRouter(
    routes.map(({ method, pattern, success, answer }) => ({ name: `${method} ${pattern}`, method, pattern, success, answer: (visitor, readBody) => answer(visitor, service, readBody) })),
  );

/** What a process can answer before anything of a service is loaded. */
export const EARLY = bind([livez], null);
