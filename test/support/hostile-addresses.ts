/** Addresses that take a browser elsewhere if they are compared or parsed carelessly. */
import { wordsOf } from './words.ts';

const { raw } = String;
const STARTS = [
  ...['', '/\t/', '\thttps://'],
  ...wordsOf(raw`
    / // /// //// ///// /\ /\/\/ \\ /<>// /%09/ //%09/ /%5c //%5c /%2f%2f /%2f%5c%2f http: http://
    https: https:// https:/// /http:// /https:// /https:/// //https:/// /https:/%5c
  `),
];

/** @param good a host that is listed. 700 addresses of other hosts, or of none */
export function hostileAddresses(good: string): string[] {
  const hosts = wordsOf(raw`
    evil.example evil%00.example evil%E3%80%82example evil。example ;@evil.example
    ${good}@evil.example ${good}:443@evil.example ${good}%40evil.example ${good}.evil.example
    ${good}%2eevil.example ${good}+&@evil.example#+@${good} evil.example#@${good}
    evil.example?@${good} evil.example\@${good} evil.example%23.${good} evil.example%2f%2f.${good}
    0xd83ad6ce 3627734734 0330.072.0326.0316 0xd8.3856078 [::ffff:216.58.214.206]
    ${good}@3627734734/%2e%2e%2f x@${good}@evil.example// javascript:alert(1)
  `);
  return STARTS.flatMap((start) => [...hosts, `evil.example\t${good}`].map((host) => start + host));
}
