import type { Call, Reply } from '../http/call.ts';
import { Failure } from '../http/errors.ts';
import type { Infer } from '../http/shape.ts';
import { type Page, pageReply } from './paging.ts';
import { type Caller, forbidden, may } from './policy.ts';
import type { IdentityService } from './service.ts';
import { type auditShape, viewAudit } from './shapes.ts';
import { type AuditEvent, listAudit } from './store/audit.ts';

/** The trail, newest first. */
export async function list(
  { caller, query, request }: Call<Caller, unknown, Page & { user: string | undefined; event: AuditEvent | undefined }, null>,
  { database }: IdentityService,
): Promise<Reply<Array<Infer<typeof auditShape>>> | Failure<'forbidden'>> {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const { user, event } = query;
  const part = await listAudit(database, query, { userId: user ?? null, event: event ?? null });
  return pageReply(request.path, query, part, viewAudit, { user, event });
}
