import type { RequestInfo } from '../http/call.ts';
import { viewAudit } from './model.ts';
import { pageReply } from './paging.ts';
import { type Ask, type Caller, forbidden, may } from './policy.ts';
import type { IdentityService } from './service.ts';
import { type Actor, type AuditEvent, listAudit } from './store/audit.ts';
import type { Page } from './store/rows.ts';

/** @param caller null for a request without a credential */
export function actorOf(caller: Caller | null, { address, requestId }: RequestInfo): Actor {
  const via = caller?.key ? 'key' : caller?.session ? 'session' : 'nobody';
  return { via, caller, userId: caller?.user?.id ?? null, ip: address, requestId };
}

type ListQuery = Page & { user: string | undefined; event: AuditEvent | undefined };

export async function list(
  { caller, query, request }: Ask<unknown, ListQuery>,
  { database }: IdentityService,
) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const found = await listAudit(database, query, {
    userId: query.user ?? null,
    event: query.event ?? null,
  });
  return pageReply(request.path, query, found, viewAudit);
}
