/**
 * Installs the current releases of the senders' own libraries into a temporary directory, and says
 * what the tests use of them. They are not dependencies of Gatehouse.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { addPackages, createPackages } from '../tools.ts';

type Headers = Readonly<Record<string, string | number>>;
type Fields = Readonly<Record<string, string>>;
interface Standard {
  readonly Webhook: new (secret: string) => {
    sign(id: string, time: Date, body: string): string;
    verify(body: string, headers: Headers): unknown;
  };
}

interface Libraries {
  readonly standardwebhooks: Standard;
  readonly svix: Standard;
  readonly '@octokit/webhooks-methods': {
    sign(secret: string, body: string): Promise<string>;
  };
  readonly '@octokit/webhooks-examples': unknown;
  readonly stripe: {
    readonly default: new (key: string) => {
      webhooks: {
        generateTestHeaderString(options: {
          payload: string;
          secret: string;
          timestamp: number;
        }): string;
        constructEvent(body: string, header: string, secret: string): { id: string; type: string };
      };
      parseEventNotification(body: string, header: string, secret: string): { type: string };
    };
  };
  readonly '@slack/bolt': {
    isValidSlackRequest(request: {
      signingSecret: string;
      body: string;
      headers: Headers;
    }): boolean;
  };
  readonly '@notionhq/client': {
    signWebhookPayload(options: { body: string; verificationToken: string }): Promise<string>;
  };
  readonly '@linear/sdk': unknown;
  readonly '@linear/sdk/webhooks': {
    readonly LinearWebhookClient: new (secret: string) => {
      createHandler(): ((request: Request) => Promise<Response>) & {
        on(type: string, handle: (payload: { type: string }) => void): void;
      };
    };
  };
  readonly '@paddle/paddle-node-sdk': {
    readonly Paddle: new (key: string) => {
      webhooks: {
        isSignatureValid(body: string, secret: string, signature: string): Promise<boolean>;
      };
    };
  };
  readonly 'discord-interactions': {
    readonly WebhookEventType: Fields;
    verifyKey(body: string, signature: string, time: string, key: string): Promise<boolean>;
  };
  readonly '@shopify/shopify-api/adapters/node': unknown;
  readonly '@shopify/shopify-api': {
    shopifyApi(settings: object): {
      webhooks: { validate(request: { rawBody: string; rawRequest: object }): Promise<object> };
    };
  };
  readonly square: {
    readonly WebhooksHelper: { verifySignature(request: Fields): Promise<boolean> };
  };
  readonly '@hubspot/api-client': { readonly Signature: { isValid(request: Headers): boolean } };
  readonly '@zoom/rivet': unknown;
  readonly '@zoom/rivet/users': {
    readonly AwsLambdaReceiver: new (options: { webhooksSecretToken: string }) => {
      start(): (event: object, context: object) => Promise<{ statusCode: number; body: string }>;
    };
  };
}

/** Installs them one at a time, so that the failure of one does not affect the others. */
export function installLibraries(...names: ReadonlyArray<keyof Libraries>) {
  const directory = createPackages();
  const failed = new Map<keyof Libraries, string>();
  for (const name of names) {
    const { output } = addPackages(directory, name);
    if (existsSync(join(directory, 'node_modules', name))) continue;
    const code = output.split('\n').find((line) => /npm (error|ERR!) code/.test(line));
    failed.set(name, `npm install ${name}: ${code ?? 'failed'}`);
  }
  // Node resolves packages relative to the importing file, so the import must be in the directory.
  const loader = join(directory, 'loader.mjs');
  writeFileSync(loader, 'export const load = (name) => import(name);');
  return {
    hasFailed: (name: keyof Libraries) => failed.has(name),
    /** Options of a test that needs a library. */
    needs: (name: keyof Libraries) => ({
      timeout: 60_000,
      ...(failed.has(name) ? { skip: failed.get(name) ?? '' } : {}),
    }),
    read: (file: string) => readFileSync(join(directory, 'node_modules', file), 'utf8'),
    async load<Name extends keyof Libraries>(name: Name): Promise<Libraries[Name]> {
      const module: { load(name: Name): Promise<Libraries[Name]> } = await import(
        pathToFileURL(loader).href
      );
      return module.load(name);
    },
  };
}
