export { orThrow, withDatabase } from './database.ts';
export { json, oneLine, parseDuration, printTable, stripControlChars } from './terminal.ts';
