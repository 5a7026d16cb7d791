/** The states of secrets and requests, as their sender sees them. */

/**
 * @typedef {{
 *   status: 'stored' | 'read' | 'expired' | 'deleted' | 'requested' | 'withdrawn',
 *   created_at: string,
 *   expires_at: string | null,
 *   reads: number,
 *   max_reads: number | null,
 *   last_read_at: string | null,
 *   failed_reads: number,
 * }} Receipt
 */

/** For each state: how it is called, its color, and what it means. */
const STATES = {
  stored: ['Not opened yet', 'info', 'The link has not been opened yet.'],
  opened: ['Opened', 'good', 'The link was opened, and can be opened again.'],
  read: ['Opened', 'good', 'The link was opened as often as allowed. The secret is deleted.'],
  expired: ['Expired', 'warn', 'The link has expired. The secret is deleted.'],
  deleted: ['Deleted', 'bad', 'The secret was deleted. The link no longer works.'],
  requested: ['Not answered yet', 'info', 'Nobody has answered the request yet.'],
  withdrawn: ['Withdrawn', 'bad', 'The request was withdrawn before it was answered.'],
};

/** @param {Pick<Receipt, 'status' | 'reads'>} receipt */
export const stateOf = ({ status, reads }) =>
  STATES[status === 'stored' && reads > 0 ? 'opened' : status];
