import { Failure } from '../../platform/http/route/errors.ts';
import {
  type Members,
  object,
  oneOf,
  text,
  type Values,
} from '../../platform/http/route/schema.ts';
import { NOTHING } from '../../platform/http/site/html.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { splitList } from '../../platform/runtime/env.ts';
import { forbidden, invalid, may, refusalOf } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { type PortalCall, recentUserForm, type SignedInUser, userForm } from '../signin/browser.ts';
import { form, type PageHandler } from '../signin/forms.ts';
import { done, page, when } from '../signin/pages.ts';
import { formValues, type PageCall } from '../signin/templates.ts';
import { actorOf } from '../store/audit.ts';
import {
  type Client,
  deleteClient,
  findClient,
  insertClient,
  listClients,
  replaceSecret,
  updateClient,
} from '../store/oidc/clients.ts';
import { listPrograms } from '../store/oidc/consents.ts';
import { endProgram } from '../store/oidc/grants.ts';
import { changedClient, createSecret, newClient } from './clients.ts';
import { render, scopeItems } from './pages.ts';

/** The programs of a person, and for administrators all that are registered. */

const PATH = '/account/programs';

const choice = oneOf('yes', 'no');
const entry = text({ max: 8_192 });
const EDIT_FIELDS = {
  name: entry,
  redirect: entry,
  logout_uri: entry,
  groups: entry,
  consent: choice,
  second_factor: choice,
  refresh: choice,
  pkce: choice,
};
const NEW_FIELDS = { id: entry, ...EDIT_FIELDS, secret: choice };

/** What was typed, as `clientSchema` reads it. Addresses stand each on a line. */
const valuesOf = (typed: Values<typeof EDIT_FIELDS>) => ({
  name: typed.name,
  redirect: typed.redirect.split(/\s+/).filter(Boolean),
  logout_uri: typed.logout_uri.split(/\s+/).filter(Boolean),
  groups: splitList(typed.groups),
  consent: typed.consent === 'yes',
  second_factor: typed.second_factor === 'yes',
  refresh: typed.refresh === 'yes',
  pkce: typed.pkce === 'yes',
});

const wordOf = (value: boolean) => (value ? 'yes' : 'no');
/** What the fields of a program hold. */
const storedOf = (client: Client) => ({
  name: client.name,
  redirect: client.redirect.join('\n'),
  logout_uri: client.logout_uri.join('\n'),
  groups: client.groups.join(', '),
  consent: wordOf(client.consent),
  second_factor: wordOf(client.second_factor),
  refresh: wordOf(client.refresh),
  pkce: wordOf(client.pkce),
});

const NEW_VALUES = {
  consent: 'yes',
  second_factor: 'no',
  refresh: 'no',
  pkce: 'yes',
  secret: 'yes',
};

export async function showPrograms(call: PortalCall, service: PortalService) {
  const own = await listPrograms(service.database, call.caller.user.id);
  const items = own.map(({ id, name, scopes, last_at }) =>
    render('program', { id, name, scopes: scopeItems(scopes), last: when(last_at) }),
  );
  const main = render('programs', {
    programs: own.length > 0 ? items : render('no-program'),
    registered: may(call.caller, 'list programs') ? await registered(call, service) : NOTHING,
  });
  return page('Programs', main, call);
}

/** For administrators. */
async function registered(call: PortalCall, { database, portal }: PortalService) {
  const clients = await listClients(database);
  const rows = clients.map(({ id, name, groups, enabled }) =>
    render('client', {
      id,
      name,
      groups: groups.join(', ') || 'every user',
      state: enabled ? 'Enabled' : 'Disabled',
    }),
  );
  return render('registered', {
    ...formValues('new', NEW_FIELDS, call, NEW_VALUES),
    fields: fieldsOf('new', NEW_FIELDS, call, NEW_VALUES),
    issuer: portal.origin,
    clients: rows.length > 0 ? rows : render('no-client'),
  });
}

/** The fields that both forms have. */
const fieldsOf = (
  name: string,
  fields: typeof EDIT_FIELDS,
  call: PageCall,
  stored: Readonly<Record<string, string>>,
) => {
  const values = formValues(name, fields, call, stored);
  const common = Object.entries(values).map(([key, value]) => [key.replace(name, 'f'), value]);
  return render('client-fields', Object.fromEntries(common));
};

/** Ends what a program has of the person who asks. */
export const endOwn = form(userForm, { client_id: text() }, async (call, { database }) => {
  const { caller, request, body } = call;
  await endProgram(database, actorOf(caller, request), body.client_id, caller.user.id);
  return done(PATH, 'The program has no access any more. It asks you again at the next sign-in.');
});

/** Shown once: only its digest is stored. */
const secretPage = (title: string, client: string, secret: string, { portal }: PortalService) =>
  page(title, render('client-secret', { client, secret, issuer: portal.origin }));

export const registerClient = form(
  recentUserForm,
  NEW_FIELDS,
  async (call, service) => {
    const { body, caller, request } = call;
    const refused = refusalOf(caller, 'change programs');
    if (refused) return refused;
    const given = newClient({ id: body.id, ...valuesOf(body) });
    if (given instanceof Failure) return given;
    const secret = body.secret === 'yes' ? createSecret() : null;
    const actor = actorOf(caller, request);
    const isNew = await insertClient(service.database, actor, given, secret);
    if (!isNew) return invalid('/id', 'is the id of another program');
    if (secret === null) return done(PATH, `The program ${given.name} is registered.`);
    return secretPage('The program is registered', given.id, secret, service);
  },
  showPrograms,
);

// --- One program

type OfClient = Readonly<{ client_id: string }>;
type ClientCall<Body = unknown> = PortalCall<unknown, OfClient, Body>;

export async function showClient(call: ClientCall, { database }: PortalService) {
  if (!may(call.caller, 'list programs')) return forbidden(call.caller);
  const client = await findClient(database, call.path.client_id);
  if (!client) return new Failure('not_found');
  const { id, name, enabled, has_secret: hasSecret } = client;
  const stored = storedOf(client);
  const main = render('client-page', {
    ...formValues('edit', EDIT_FIELDS, call, stored),
    fields: fieldsOf('edit', EDIT_FIELDS, call, stored),
    id,
    secret: hasSecret ? render('client-new-secret', { id }) : NOTHING,
    switch: render(enabled ? 'client-disable' : 'client-enable', { id, name }),
    name,
  });
  return page(name, main, call);
}

/** A form of the page of a program. */
const change = <M extends Members>(
  fields: M,
  apply: (
    call: ClientCall<Values<M>>,
    service: PortalService,
    client: Client,
  ) => ReturnType<PageHandler<unknown>>,
) =>
  form<SignedInUser, OfClient, M>(
    recentUserForm,
    fields,
    async (call, service) => {
      const refused = refusalOf(call.caller, 'change programs');
      if (refused) return refused;
      const client = await findClient(service.database, call.path.client_id);
      return client ? apply(call, service, client) : new Failure('not_found');
    },
    showClient,
  );

/** Changes what is registered. */
async function update(
  { caller, request }: ClientCall,
  { database }: PortalService,
  client: Client,
  given: Readonly<Record<string, unknown>>,
  notice: string,
) {
  const changed = changedClient(client, given);
  if (changed instanceof Failure) return changed;
  await updateClient(database, actorOf(caller, request), changed);
  return done(`${PATH}/${client.id}`, notice);
}

const turn = (enabled: boolean, notice: string) =>
  change({}, (call, service, client) => update(call, service, client, { enabled }, notice));

/** By the last part of their addresses. */
export const CLIENT_CHANGES = {
  edit: change(EDIT_FIELDS, (call, service, client) =>
    update(call, service, client, valuesOf(call.body), 'The program is changed.'),
  ),
  secret: change({}, async ({ caller, request }, service, { id }) => {
    const secret = createSecret();
    const actor = actorOf(caller, request);
    const isReplaced = await replaceSecret(service.database, actor, id, secret, DAY_SECONDS);
    if (!isReplaced) return new Failure('conflict', { message: 'The program has no secret.' });
    return secretPage('The program has a new secret', id, secret, service);
  }),
  enable: turn(true, 'Users may sign in at the program.'),
  disable: turn(false, 'Nobody may sign in at the program. Its tokens have ended.'),
  delete: change({}, async ({ caller, request }, { database }, { id, name }) => {
    await deleteClient(database, actorOf(caller, request), id);
    return done(PATH, `The program ${name} is deleted.`);
  }),
};

export const clientPath = object({ client_id: text() });
