#!/usr/bin/env node
// Apart from main.ts, because old versions of Node must be able to parse it before it rejects them.
// The other modules would fail there with a stack trace.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major > 20 || (major === 20 && minor >= 11)) {
  void import('./main.ts');
} else {
  process.stderr.write(
    `gatehouse: Node ${process.versions.node} is too old. Install Node 20.11 or newer.\n`,
  );
  process.exitCode = 1;
}
