import { setTimeout as sleep } from 'node:timers/promises';
import { isObject } from '../platform/http/route/schema.ts';
import { createRecentMap } from '../platform/runtime/rate-limit.ts';
import { isHttpUrl, readClient } from '../webhook/settings.ts';
import type { JsonObject } from '../webhook/sources.ts';
import { forwardHeaders } from '../webhook/targets/forward.ts';
import { OperationFailed, type Terminal, UsageError } from './command.ts';
import { readClientVariables } from './database.ts';
import { sendRequest } from './request.ts';
import { membersOf } from './terminal.ts';

/** How often new events are asked for. */
const POLL_MS = 1_000;
/** An event may become visible this much later than its received_at. */
const LOOK_BACK_MS = 10_000;
/** How many events are remembered at least: more than arrive within the time of looking back. */
const MAX_SEEN = 50_000;

type Service = ReturnType<typeof readService>;

class NotReached extends Error {}

/**
 * Sends each new event to a program on this machine, with its raw bytes. Changes nothing at the
 * service. After an interruption it goes on where it was: events are asked for by their time, and
 * those already sent are left out.
 */
export async function forwardEvents(url: string, terminal: Terminal) {
  if (!isHttpUrl(url)) throw new UsageError('--forward must be an http or https URL');
  const service = readService(terminal);
  const seen = createRecentMap<true>(MAX_SEEN);
  // Null before the first poll; 0 if the inbox was empty, so that every event is new.
  let since: number | null = null;
  let isLost = false;
  while (terminal.isRead()) {
    try {
      let events: readonly JsonObject[] = await newEvents(service, since);
      const isFirst: boolean = since === null;
      const newest = events.at(-1);
      // Only events that arrive from now on are sent: all that the next poll finds again are seen.
      if (isFirst && newest) events = await newEvents(service, receivedAt(newest));
      for (const event of events) {
        const id = String(event.id);
        if (seen.get(id)) continue;
        if (!isFirst) await forward(service, id, url, terminal);
        seen.set(id, true);
        since = Math.max(since ?? 0, receivedAt(event));
      }
      since ??= 0;
      if (isFirst) terminal.note(`New events of ${service.base} go to ${url}. Ctrl-C ends it.`);
      else if (isLost) terminal.note('Connected again.');
      isLost = false;
    } catch (error) {
      if (!(error instanceof NotReached)) throw error;
      if (!isLost) terminal.note(`${error.message}; trying again.`);
      isLost = true;
    }
    await sleep(POLL_MS);
  }
}

function readService(terminal: Terminal) {
  const { url, token } = readClientVariables(terminal, readClient);
  if (token === null)
    throw new OperationFailed(
      'OPERATOR_TOKEN or OPERATOR_TOKEN_FILE must be set; make a token with: gatehouse token create --role operator',
    );
  return { base: url.replace(/\/+$/, ''), token };
}

const receivedAt = (event: JsonObject) => Date.parse(String(event.received_at));

/** @param since milliseconds since 1970; null for the newest page. @returns the oldest first */
async function newEvents(service: Service, since: number | null) {
  const found: JsonObject[] = [];
  const query = new URLSearchParams({ limit: '100' });
  if (since) query.set('since', new Date(since - LOOK_BACK_MS).toISOString());
  for (;;) {
    const { reply, next } = await ask(service, `/events?${query}`);
    found.push(...(Array.isArray(reply) ? reply.filter(isObject) : []));
    if (next === null || since === null) return found.reverse();
    query.set('after', next);
  }
}

async function forward(service: Service, id: string, url: string, terminal: Terminal) {
  const { reply } = await ask(service, `/events/${id}`);
  const details = membersOf(reply);
  const event = membersOf(details.event);
  const body = Buffer.from(String(details.body), 'utf8');
  const kept = Object.entries(membersOf(details.headers));
  // fetch sets the length itself.
  const { 'content-length': _length, ...headers } = forwardHeaders(
    {
      id,
      event: String(event.event),
      headers: Object.fromEntries(kept.map(([name, value]) => [name, String(value)])),
      body,
      attempt: 1,
    },
    null,
  );
  const startedAt = performance.now();
  const sent = sendRequest(url, null, {
    method: 'POST',
    headers,
    body,
  });
  const answer = await sent.catch(() => null);
  await answer?.body?.cancel();
  const status = answer?.status ?? 'no answer';
  const ms = Math.round(performance.now() - startedAt);
  terminal.print(`${event.received_at}  ${id}  ${event.event}  ${status}  ${ms} ms`);
}

/** @returns the reply, and the `after` of its next page */
async function ask({ base, token }: Service, path: string) {
  const response = await sendRequest(base + path, token).catch(() => null);
  const lost = new NotReached(`${base} ${response ? 'is not available' : 'does not answer'}`);
  if (!response || response.status >= 500 || response.status === 429) throw lost;
  if (response.status === 401)
    throw new OperationFailed(`OPERATOR_TOKEN is not the token of an operator of ${base}`);
  if (!response.ok)
    throw new OperationFailed(`${base} answered ${response.status}; check GATEHOUSE_WEBHOOK_URL`);
  const reply: unknown = await response.json().catch(() => {
    throw lost;
  });
  const link = /[?&]after=([0-9a-f-]+)[^>]*>; rel="next"/.exec(response.headers.get('link') ?? '');
  return { reply, next: link?.[1] ?? null };
}
