/** By way of PgBouncer in session mode before HAProxy. */
import { rehearse } from './rehearsal.ts';

rehearse('pgbouncer');
