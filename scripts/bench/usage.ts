/** Processor time and memory of processes, from Linux's /proc. Elsewhere every value is null. */
import { existsSync, readFileSync } from 'node:fs';

/** USER_HZ, the unit of /proc/…/stat, whatever the kernel's own clock. */
const TICKS_PER_SECOND = 100;
const hasProc = existsSync('/proc/self/stat');

/**
 * User and system time of a process and its descendants, in microseconds. Ended children count with
 * their parent.
 */
export const cpuMicros = (processId: number): number | null =>
  hasProc ? (ticks(processId) * 1_000_000) / TICKS_PER_SECOND : null;

function ticks(processId: number): number {
  try {
    // The process name is in parentheses and may contain anything. Field 3 follows it.
    const status = readFileSync(`/proc/${processId}/stat`, 'utf8').split(') ').at(-1) ?? '';
    const [userTime, systemTime, ofChildren, systemOfChildren] = status.split(' ').slice(11, 15);
    const own = [userTime, systemTime, ofChildren, systemOfChildren].map(Number);
    const list = readFileSync(`/proc/${processId}/task/${processId}/children`, 'utf8');
    const children = list.split(' ').filter((id) => id !== '');
    return [...own, ...children.map((id) => ticks(Number(id)))].reduce((sum, one) => sum + one);
  } catch {
    // It has just ended.
    return 0;
  }
}

/** Resident memory of a process in MiB. Null if it has ended. */
export function memoryMiB(processId: number): number | null {
  try {
    const status = readFileSync(`/proc/${processId}/status`, 'utf8');
    const kibibytes = /^VmRSS:\s+(\d+)/m.exec(status)?.[1];
    return kibibytes === undefined ? null : Number(kibibytes) / 1024;
  } catch {
    return null;
  }
}
