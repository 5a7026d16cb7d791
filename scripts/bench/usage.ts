/** What processes use, as Linux tells it in /proc; elsewhere there is null in every place. */
import { existsSync, readFileSync } from 'node:fs';

/** USER_HZ: what /proc counts in, whatever the kernel's own clock. */
const TICKS_A_SECOND = 100;
const hasProc = existsSync('/proc/self/stat');

/** Processor time of a process and of all below it, in microseconds. That of those which have ended is with their parent. */
export function cpuMicros(processId: number): number | null {
  return hasProc ? (ticks(processId) * 1_000_000) / TICKS_A_SECOND : null;
}

function ticks(processId: number): number {
  try {
    // The name, in parentheses, may hold anything; what follows it begins with field 3.
    const fields = readFileSync(`/proc/${processId}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    // utime, stime, cutime, cstime
    const own = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    const children = readFileSync(`/proc/${processId}/task/${processId}/children`, 'utf8').split(' ').filter((id) => id !== '');
    return children.reduce((sum, id) => sum + ticks(Number(id)), own);
  } catch {
    // It ended a moment ago.
    return 0;
  }
}

/** Resident memory of a process, in MiB; null also when it has ended. */
export function residentMiB(processId: number): number | null {
  try {
    const said = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${processId}/status`, 'utf8'))?.[1];
    return said === undefined ? null : Number(said) / 1024;
  } catch {
    return null;
  }
}
