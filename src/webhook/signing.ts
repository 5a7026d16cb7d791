import { deriveServerKey, type ServerKey } from '../crypto/box.ts';

/** @param secret WEBHOOK_SECRET, or one of WEBHOOK_SECRET_PREVIOUS */
export const createSigningKey = (secret: string): ServerKey => deriveServerKey(secret, 'gatehouse/webhook/v1/');

/** The first seals, all of them open. */
export type SigningKeys = readonly [ServerKey, ...ServerKey[]];
