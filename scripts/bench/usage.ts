/** Processor time and memory of processes, from Linux's /proc. Elsewhere every value is null. */
import { existsSync, readFileSync } from 'node:fs';

/** USER_HZ, the unit of /proc/…/stat, whatever the kernel's own clock. */
const TICKS_PER_SECOND = 100;
const hasProc = existsSync('/proc/self/stat');

/** User and system time of a process and its descendants, in microseconds. Ended children count with their parent. */
export function cpuMicros(processId: number): number | null {
  return hasProc ? (ticks(processId) * 1_000_000) / TICKS_PER_SECOND : null;
}

function ticks(processId: number): number {
  try {
    // The process name is in parentheses and may contain anything. Field 3 follows it.
    const fields = readFileSync(`/proc/${processId}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    // utime, stime, cutime, cstime
    const own = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    const children = readFileSync(`/proc/${processId}/task/${processId}/children`, 'utf8').split(' ');
    return children.filter((id) => id !== '').reduce((sum, id) => sum + ticks(Number(id)), own);
  } catch {
    // It has just ended.
    return 0;
  }
}

/** Memory of a process in MiB: resident now (VmRSS) or at most since its start (VmHWM). Null if it has ended. */
export function memoryMiB(processId: number, field: 'VmRSS' | 'VmHWM' = 'VmRSS'): number | null {
  try {
    const status = readFileSync(`/proc/${processId}/status`, 'utf8');
    const kibibytes = new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1];
    return kibibytes === undefined ? null : Number(kibibytes) / 1024;
  } catch {
    return null;
  }
}
