/** A test, or the file of a test: what was started for it ends with it. */
export interface Owner {
  after(end: () => Promise<void> | void): void;
}
