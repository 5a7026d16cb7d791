import { optional, text, type Values } from '../../platform/http/route/schema.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { auditCsv, auditFilter } from '../lists.ts';
import { forbidden, may } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { EVENTS } from '../store/audit.ts';
import { listAudit } from '../store/lists.ts';
import { listQuery } from './account.ts';
import type { PortalCall } from './browser.ts';
import { accountPage, CSV_ROWS, isCsv, listValues, when } from './pages.ts';
import { render, renderIf } from './templates.ts';

const DAY = /^[12]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/;
const isTime = (value: string) => DAY.test(value) || /^[12]\d{3}-.+T.+Z$/.test(value);

/** A day in UTC, for which scripts send the time at which it begins or ends for the reader. */
const dayOrTime = optional(
  text({
    max: 32,
    check: (value) =>
      isTime(value) && !Number.isNaN(Date.parse(value))
        ? null
        : 'must be a day, such as 2026-02-28',
  }),
);

export const auditQuery = { ...listQuery, ...auditFilter, from: dayOrTime, to: dayOrTime };
type AuditCall = PortalCall<Values<typeof auditQuery>>;

function filterOf({ user, event, from, to }: AuditCall['query']) {
  // A day ends with its last moment.
  const length = DAY.test(to ?? '') ? DAY_SECONDS * 1000 : 0;
  return {
    user,
    event,
    from: from === undefined ? undefined : new Date(from),
    before: to === undefined ? undefined : new Date(Date.parse(to) + length),
  };
}

/** The audit trail, newest first. As CSV, the newest entries, which are held in memory. */
export async function showAudit(call: AuditCall, service: PortalService) {
  const { caller, query, request } = call;
  if (!may(caller, 'read the audit trail')) return forbidden(caller);
  const range = isCsv(request) ? CSV_ROWS : query;
  const { rows, total } = await listAudit(service.database, range, filterOf(query));
  if (isCsv(request)) return auditCsv(rows);
  const who = (id: string | null, name: string | null) =>
    id === null ? '–' : render('audit-user', { id, name: name || 'an erased user' });
  const entries = rows.map(({ via, ip, detail, key_id: id, ...entry }) =>
    render('audit-row', {
      time: when(entry.created_at),
      event: render(entry.event),
      by: who(entry.actor_id, entry.actor),
      via: render(`via-${via}`),
      user: who(entry.user_id, entry.subject),
      ip: ip ?? '–',
      detail,
      key: renderIf(id !== null, 'audit-key', {
        id: id ?? '',
        name: entry.key_name || 'without a name',
        creator: entry.key_creator || 'the command line',
      }),
    }),
  );
  return accountPage(call, 'Audit trail', 'audit', {
    ...listValues('/account/audit', auditQuery, query, total),
    events: EVENTS.map((value) =>
      render('option', {
        value,
        label: render(value),
        state: renderIf(value === query.event, 'selected'),
      }),
    ),
    rows: total > 0 ? entries : render('no-entry'),
  });
}
