/**
 * Loaded into a program that is profiled: at the first SIGPWR, starts to sample its processor time
 * and its allocations; at the second, writes both to the file PROFILE as JSON.
 */
import { writeFileSync } from 'node:fs';
import { Session } from 'node:inspector';

/** Bytes between two sampled allocations. */
const ALLOCATION_INTERVAL = 16_384;
const SAMPLE_MICROSECONDS = 200;

const { PROFILE = '' } = process.env;
delete process.env.PROFILE;
const session = new Session();
session.connect();

/** Calls within one thread end before they return. */
function call(method, parameters = {}) {
  let result;
  session.post(method, parameters, (error, value) => {
    if (error) throw error;
    result = value;
  });
  return result;
}

function start() {
  call('Profiler.enable');
  call('Profiler.setSamplingInterval', { interval: SAMPLE_MICROSECONDS });
  call('HeapProfiler.startSampling', {
    samplingInterval: ALLOCATION_INTERVAL,
    includeObjectsCollectedByMajorGC: true,
    includeObjectsCollectedByMinorGC: true,
  });
  call('Profiler.start');
}

function stop() {
  const { profile: time } = call('Profiler.stop');
  const { profile: memory } = call('HeapProfiler.stopSampling');
  writeFileSync(PROFILE, JSON.stringify({ time, memory }));
}

process.once('SIGPWR', () => {
  start();
  process.once('SIGPWR', stop);
});
