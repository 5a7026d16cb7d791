import { scalar, text, type Values, withDefault } from '../../platform/http/route/schema.ts';
import { auditCsv } from '../lists.ts';
import { forbidden, may } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { EVENTS } from '../store/audit.ts';
import { listAudit } from '../store/lists.ts';
import { pageQuery, rangeOf } from './account.ts';
import { anyName } from './administration.ts';
import type { PortalCall } from './browser.ts';
import { accountPage, pager, when } from './pages.ts';
import { formValues, render } from './templates.ts';

/** A day of a month. 31 February is 3 March. */
const day = withDefault(
  text({
    pattern: {
      form: /^([12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))?$/,
      problem: 'must be a day, such as 2026-02-28',
    },
  }),
  '',
);

const CHOICES = ['', ...EVENTS] as const;
const event = scalar(
  { type: 'string', enum: CHOICES },
  'must be the name of an event, such as login.failed',
  (input) => CHOICES.find((name) => name === input),
);

/** Empty for all. Days are those of UTC. */
export const auditQuery = {
  ...pageQuery,
  user: anyName,
  event: withDefault(event, ''),
  from: day,
  to: day,
};
type AuditCall = PortalCall<Values<typeof auditQuery>>;

/** The audit trail, newest first. */
export async function showAudit(call: AuditCall, service: PortalService) {
  const { caller, query } = call;
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const { page, ...filters } = query;
  const { rows, total } = await listAudit(service.database, rangeOf(query), filters);
  const who = (id: string | null, name: string | null) =>
    id === null ? '–' : render('audit-user', { id, name: name || 'an erased user' });
  const entries = rows.map(({ via, ip, detail, key_id: key, key_created_by: creator, ...entry }) =>
    render('audit-row', {
      time: when(entry.created_at),
      event: render(entry.event),
      by: who(entry.actor_id, entry.actor),
      via: render(`via-${via}`),
      user: who(entry.user_id, entry.subject),
      ip: ip ?? '–',
      detail: key === null ? detail : render('audit-key', { detail, key, creator: creator ?? '–' }),
    }),
  );
  const parameters = String(new URLSearchParams(filters));
  return accountPage(call, 'Audit trail', 'audit', {
    ...formValues('filter', auditQuery, {}, filters),
    total,
    parameters,
    rows: total > 0 ? entries : render('no-entry'),
    pages: pager(`/account/audit?${parameters}&page=`, page, total),
  });
}

/** The newest entries, which are held in memory. */
export async function exportAudit({ caller, query }: AuditCall, service: PortalService) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const newest = { page: 1, limit: 10_000 };
  return auditCsv((await listAudit(service.database, newest, query)).rows);
}
