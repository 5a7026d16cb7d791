/** A proxy with TLS: its certificate, and requests to it. */
import { execFileSync } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { wordsOf } from '../../support/words.ts';
import { type HeaderFields, pairs } from './setup.ts';

/** Sends one request to the proxy. */
export async function askProxy(
  { port }: { readonly port: number },
  {
    method = 'GET',
    host = 'app.example.org',
    path = '/',
    headers = [],
    body = '',
  }: {
    method?: string;
    host?: string;
    path?: string;
    headers?: HeaderFields;
    body?: string;
  },
): Promise<{ status: number; headers: Headers; text: string }> {
  const length = body === '' ? [] : [['Content-Length', String(Buffer.byteLength(body))]];
  const sent = [['Host', host], ['Connection', 'close'], ...length, ...headers].flat();
  const options = {
    host: '127.0.0.1',
    port,
    servername: host.replace(/:.*/, ''),
    method,
    path,
    headers: sent,
    rejectUnauthorized: false,
    agent: false,
  };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    httpsRequest(options, resolve).on('error', reject).end(body);
  });
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += chunk;
  return {
    status: response.statusCode ?? 0,
    headers: new Headers(pairs(response.rawHeaders)),
    text,
  };
}

/** A certificate for all names of the test. Chromium accepts it by the digest of its key. */
export function createCertificate() {
  const directory = mkdtempSync(join(tmpdir(), 'gatehouse-tls-'));
  try {
    const key = join(directory, 'key.pem');
    const certificate = join(directory, 'certificate.pem');
    const words = wordsOf(`
      req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=example.org
      -addext subjectAltName=DNS:*.example.org,DNS:*.example.net -keyout
    `);
    execFileSync('openssl', [...words, key, '-out', certificate], { stdio: 'pipe' });
    const pem = readFileSync(certificate, 'utf8');
    const spki = new X509Certificate(pem).publicKey.export({ type: 'spki', format: 'der' });
    return {
      certificate: pem,
      key: readFileSync(key, 'utf8'),
      pin: createHash('sha256').update(spki).digest('base64'),
    };
  } finally {
    rmSync(directory, { recursive: true });
  }
}
export type Certificate = ReturnType<typeof createCertificate>;
