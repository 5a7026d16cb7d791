export type About =
  Readonly<{ kind: 'text' }> | Readonly<{ kind: 'file'; name: string; type: string }>;
export type Content = Readonly<{ about: About; bytes: Uint8Array }>;
/** What the service gets as the passphrase, if there is one. */
type Proof = Readonly<{ proof: string | undefined }>;

/** The end-to-end encryption of the share pages. docs/secrets.md describes the format. */
export interface Envelope {
  seal(
    content: Content,
    passphrase: string,
  ): Promise<Proof & Readonly<{ key: string; envelope: string }>>;
  open(envelope: string, contentKey: Uint8Array): Promise<Content | null>;
  deriveKeys(
    key: string,
    passphrase: string,
  ): Promise<(Proof & Readonly<{ content: Uint8Array }>) | null>;
  envelopeLength(about: About, size: number): number;
  safeName(name: string): string;
}

/** The same code as in browsers. The service itself does not use it. */
export const loadEnvelope = async (): Promise<Envelope> =>
  import(new URL('pages/envelope.js', import.meta.url).href);
