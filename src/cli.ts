#!/usr/bin/env node
// Only what versions of Node long out of support can parse. They would end with a stack trace while loading the rest.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major > 20 || (major === 20 && minor >= 11)) {
  void import('./main.ts');
} else {
  process.stderr.write(`gatehouse: Node ${process.versions.node} is too old. Install Node 20.11 or newer.\n`);
  process.exitCode = 1;
}
