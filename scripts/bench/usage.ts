/** Processor time and memory of processes, from Linux's /proc. Elsewhere every value is null. */
import { existsSync, readFileSync } from 'node:fs';

/** USER_HZ, the unit of /proc/…/stat, whatever the kernel's own clock. */
const TICKS_PER_SECOND = 100;
const hasProc = existsSync('/proc/self/stat');

/**
 * User and system time of a process and its descendants, in microseconds. Ended children count with
 * their parent.
 */
export function cpuMicros(processId: number): number | null {
  return hasProc ? (ticks(processId) * 1_000_000) / TICKS_PER_SECOND : null;
}

/**
 * The same without the descendants that still run: the load generator has ended by then, a server
 * has not.
 */
export const ownCpuMicros = (processId: number): number | null =>
  hasProc ? (sum(fieldsOf(processId)) * 1_000_000) / TICKS_PER_SECOND : null;

/** utime, stime, cutime, cstime */
function fieldsOf(processId: number): number[] {
  // The process name is in parentheses and may contain anything. Field 3 follows it.
  const fields =
    readFileSync(`/proc/${processId}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return fields.slice(11, 15).map(Number);
}

const sum = (values: readonly number[]): number =>
  values.reduce((total, value) => total + value, 0);

function ticks(processId: number): number {
  try {
    const own = sum(fieldsOf(processId));
    const children = readFileSync(`/proc/${processId}/task/${processId}/children`, 'utf8').split(
      ' ',
    );
    return own + sum(children.filter((id) => id !== '').map((id) => ticks(Number(id))));
  } catch {
    // It has just ended.
    return 0;
  }
}

/**
 * Memory of a process in MiB: resident now (VmRSS) or at most since its start (VmHWM). Null if it
 * has ended.
 */
export function memoryMiB(processId: number, field: 'VmRSS' | 'VmHWM' = 'VmRSS'): number | null {
  try {
    const status = readFileSync(`/proc/${processId}/status`, 'utf8');
    const kibibytes = new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1];
    return kibibytes === undefined ? null : Number(kibibytes) / 1024;
  } catch {
    return null;
  }
}
