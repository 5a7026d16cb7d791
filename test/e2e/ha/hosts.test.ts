/** By way of a database URL that names both nodes. */
import { rehearse } from './rehearsal.ts';

rehearse('hosts');
