import { oneOf, text, type Values, withDefault, withoutNul } from '../../http/schema.ts';
import { Html } from '../../http/html.ts';
import { auditCsv, findEntries } from '../lists.ts';
import { forbidden, may } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { EVENTS } from '../store/audit.ts';
import { pageQuery, rangeOf } from './account.ts';
import { withChosen } from './forms.ts';
import type { PortalCall } from './guards.ts';
import { accountPage, pager, render, when } from './pages.ts';

/** Only what both `Date` and PostgreSQL read. */
const DAY = /^([12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))?$/;
const dayError = (day: string) => (DAY.test(day) ? null : 'must be a day, such as 2026-02-28');
const day = withDefault(text({ check: dayError }), '');

/** Empty for all. Days are those of UTC. */
export const auditQuery = {
  ...pageQuery,
  user: withDefault(text({ max: 255, check: withoutNul }), ''),
  event: withDefault(oneOf('', ...EVENTS), ''),
  from: day,
  to: day,
};
type AuditCall = PortalCall<Values<typeof auditQuery>>;

/** The audit trail, newest first. */
export async function showAudit({ caller, query }: AuditCall, service: PortalService) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const { page, ...filters } = query;
  const { rows, total } = await findEntries(service, filters, rangeOf(query));
  const who = (id: string | null, name: string | null) =>
    id === null ? '–' : render('audit-user', { id, name: name || 'an erased user' });
  const entries = rows.map(({ via, ip, detail, ...entry }) =>
    render('audit-row', {
      time: when(entry.created_at),
      event: render(entry.event),
      by: who(entry.actor_id, entry.actor),
      via: render(`via-${via}`),
      user: who(entry.user_id, entry.subject),
      ip: ip ?? '–',
      detail,
    }),
  );
  const parameters = String(new URLSearchParams(filters));
  const main = render('audit', {
    ...filters,
    total,
    parameters,
    rows: entries.length > 0 ? entries : render('no-entry'),
    pages: pager(`/account/audit?${parameters}&page=`, page, total),
  });
  return accountPage(caller, 'Audit trail', new Html(withChosen(main.text, [filters.event])));
}

/** The newest entries. They are held in memory. */
const EXPORTED = { page: 1, limit: 10_000 };

export async function exportAudit({ caller, query }: AuditCall, service: PortalService) {
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  return auditCsv((await findEntries(service, query, EXPORTED)).rows);
}
