/** The requests of the load: which replies are right, and which say that nothing is known. */
import type { ServiceName } from '../system.ts';

/** The members of replies that the load reads. */
interface ReplyBody {
  readonly id?: string;
  readonly secret?: string;
  readonly password?: string;
  readonly status?: string;
  readonly data?: {
    readonly id?: string;
    readonly session?: string;
    readonly key?: string;
    readonly username?: string;
    readonly user?: { readonly id?: string };
  } | null;
  readonly error?: { readonly code?: string };
}

export interface Reply {
  readonly status: number;
  readonly body: ReplyBody;
}

export interface RequestOptions {
  /** The statuses that are right, whatever fails. */
  readonly expected: readonly number[];
  readonly bearer?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * The client's address. By default another one for each request, so that no throttle answers
   * instead.
   */
  readonly address?: string;
  /** What a wrong status means, for the report. */
  readonly about: string;
}

export type Requests = ReturnType<typeof createRequests>;

/**
 * A failed database is 500 `service_failed` from identity and 503 `unavailable` from the others,
 * and nothing else.
 */
const FAILED = new Set(['500 service_failed', '503 unavailable', '503 overloaded']);
const TIMEOUT_MS = 40_000;

/** @param url the present URL of a service */
export function createRequests(url: (service: ServiceName) => string) {
  const problems: string[] = [];
  const begun = Date.now();
  const counts = {
    identity: { answered: 0, failed: 0 },
    secrets: { answered: 0, failed: 0 },
    webhook: { answered: 0, failed: 0 },
  };
  let number = 0;
  let isFaultOver = false;
  const report = (problem: string) => {
    problems.push(`after ${((Date.now() - begun) / 1000).toFixed(1)} s: ${problem}`);
  };

  function fail(service: ServiceName, text: string): null {
    counts[service].failed += 1;
    if (isFaultOver) report(`${service}: ${text}, after the fault`);
    return null;
  }

  /**
   * @returns null if the request failed, for a reason that a fault explains: it may or may not have
   * had its effect
   */
  async function send(
    service: ServiceName,
    method: string,
    path: string,
    options: RequestOptions,
  ): Promise<Reply | null> {
    const { expected, about } = options;
    const what = `${method} ${path.split('?')[0]}`;
    number += 1;
    const address =
      options.address ?? `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}`;
    let reply: Reply;
    try {
      reply = await call(url(service) + path, method, address, options);
    } catch (error) {
      // A reply that took longer than every limit of the service is a fault of its own.
      const isLate = error instanceof Error && error.name === 'TimeoutError';
      if (isLate) report(`${about}: ${what} had no reply in ${TIMEOUT_MS} ms`);
      return fail(service, `${what} failed`);
    }
    const got = `${reply.status} ${reply.body.error?.code ?? ''}`.trim();
    if (FAILED.has(got)) return fail(service, `${what} answered ${got}`);
    counts[service].answered += 1;
    if (expected.includes(reply.status)) return reply;
    report(`${about}: ${what} answered ${got} instead of ${expected.join(' or ')}`);
    return null;
  }

  /** From now on no request may fail. */
  const expectNoFailure = () => {
    isFaultOver = true;
  };
  return { send, report, problems, counts, expectNoFailure };
}

/** @param address the client's, as a trusted proxy would state it */
async function call(
  url: string,
  method: string,
  address: string,
  options: RequestOptions,
): Promise<Reply> {
  const { bearer, body } = options;
  const headers = {
    'x-forwarded-for': address,
    ...(bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    ...options.headers,
  };
  const content = body === undefined ? {} : { body: JSON.stringify(body) };
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch(url, { method, headers, signal, ...content });
  return { status: response.status, body: JSON.parse(await response.text()) };
}
