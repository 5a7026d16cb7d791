import https from 'node:https';
import { TLSSocket } from 'node:tls';
import { hasPrivateAddress, publicLookup } from '../platform/http/wire/private-address.ts';
import { DAY_SECONDS } from '../platform/runtime/duration.ts';
import type { WebhookService } from './service.ts';
import { readNotices } from './store/notices.ts';
import { listTargets } from './store/tokens.ts';

const WARNING_MS = 14 * DAY_SECONDS * 1_000;

/** As of `Service.observe`. Certificates of targets are looked at when a day begins. */
export async function observe(service: WebhookService, since: string, until: string) {
  const { database, commonTarget, delivery } = service;
  const notices = await readNotices(database, since, until);
  const day = until.slice(0, 10);
  if (day <= since) return notices;
  const own = await listTargets(database);
  const origins = [commonTarget, ...own.map(({ target }) => target)].flatMap((target) =>
    target && 'url' in target ? new URL(target.url).origin : [],
  );
  const ends = [...new Set(origins)].map(async (origin) => {
    const end = await certificateEnd(new URL(origin), delivery.allowPrivate).catch(() => '');
    const isNear = Date.parse(end) - Date.parse(day) < WARNING_MS;
    return isNear ? [`the certificate of ${origin} ends on ${end}`] : [];
  });
  return [...notices, ...(await Promise.all(ends)).flat()];
}

/** Sends nothing, so the certificate of an unknown authority may be read, too. */
async function certificateEnd(url: URL, allowPrivate: boolean) {
  if (url.protocol !== 'https:' || (!allowPrivate && hasPrivateAddress(url))) return '';
  const request = https.request(url, {
    lookup: allowPrivate ? undefined : publicLookup('private'),
    rejectUnauthorized: false,
    signal: AbortSignal.timeout(10_000),
    agent: false,
  });
  // Both listeners stand before any `await`: the lookup of a name that is too long fails at once.
  const connected = new Promise<unknown>((resolve, reject) => {
    request.on('error', reject);
    request.once('socket', (socket) => socket.once('secureConnect', () => resolve(socket)));
  });
  try {
    const socket = await connected;
    return socket instanceof TLSSocket ? socket.getPeerCertificate().valid_to : '';
  } finally {
    request.destroy();
  }
}
