/** By way of HAProxy, which asks Patroni for the leader. */
import { rehearse } from './rehearsal.ts';

rehearse('haproxy');
