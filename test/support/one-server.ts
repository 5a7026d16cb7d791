/**
 * For tests that look into one server, or change rows as Citus cannot. `make e2e NAME=citus` runs
 * the others on several.
 */
export const onOneServer = {
  skip: process.env.TEST_WORKER_URLS === undefined ? false : 'needs PostgreSQL without Citus',
} as const;
