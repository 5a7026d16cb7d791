/** A browser without scripts: it keeps cookies, follows redirects, and fills in the forms. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request as send } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import { formsOn } from '../../support/forms.ts';
import { continuation } from '../../support/oidc.ts';

export interface Seen {
  readonly status: number;
  /** After all redirects. */
  readonly address: string;
  readonly text: string;
}

type Fields = Readonly<Record<string, string>>;

/** mod_auth_openidc answers 401 to a client that looks like a script. */
const NAVIGATION = {
  accept: 'text/html',
  'sec-fetch-mode': 'navigate',
  'sec-fetch-dest': 'document',
};
const MAX_HOPS = 20;

/** Sends requests, with the cookies of their host and port. */
function createClient() {
  const jar = new Map<string, string>();
  return async (url: URL, fields?: Fields) => {
    const own = [...jar].filter(([name]) => name.startsWith(`${url.host} `));
    const cookie = own.map(([name, value]) => `${name.split(' ')[1]}=${value}`).join('; ');
    const form = { origin: url.origin, 'content-type': 'application/x-www-form-urlencoded' };
    const asked = send(url, {
      method: fields ? 'POST' : 'GET',
      headers: { ...NAVIGATION, ...(cookie && { cookie }), ...(fields && form) },
      agent: false,
    });
    // After the response: mod_auth_openidc sends more than that when it signs a person out.
    asked.on('error', () => {});
    asked.end(fields && String(new URLSearchParams(fields)));
    const [response]: IncomingMessage[] = await once(asked, 'response');
    assert.ok(response);
    const { statusCode = 0, headers } = response;
    for (const text of headers['set-cookie'] ?? []) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(text) ?? [];
      if (value === '' || /Max-Age=0|1970/.test(text)) jar.delete(`${url.host} ${name}`);
      else jar.set(`${url.host} ${name}`, value);
    }
    return { status: statusCode, location: headers.location, text: await readText(response) };
  };
}

export function createVisitor(username: string, password: string) {
  const request = createClient();
  /** What a person answers to the form of an address. */
  const answers: Readonly<Record<string, Fields>> = {
    '/login': { username, password },
    '/oidc/consent': { answer: 'allow' },
    '/oidc/logout/confirm': {},
  };

  /** Opens an address, without answering to a page. */
  async function look(address: string, fields?: Fields): Promise<Seen> {
    let url = new URL(address);
    let sent = fields;
    for (let hop = 0; hop < MAX_HOPS; hop += 1) {
      const { status, location, text } = await request(url, sent);
      sent = undefined;
      const isContinuation = text.includes('http-equiv="refresh"');
      if (location === undefined && !isContinuation) return { status, address: url.href, text };
      url = new URL(location ?? continuation({ text }), url);
    }
    return assert.fail(`${address} redirects for ever`);
  }

  return {
    look,
    /** Opens an address, and answers until there is a page without a question. */
    async open(address: string): Promise<Seen> {
      let seen = await look(address);
      for (let hop = 0; hop < MAX_HOPS; hop += 1) {
        const form = formsOn(seen.text).find(({ action }) => action in answers);
        if (form === undefined) return seen;
        const fields = { ...form.hidden, ...answers[form.action] };
        seen = await look(new URL(form.action, seen.address).href, fields);
      }
      return assert.fail(`${seen.address} asks for ever`);
    },
  };
}
