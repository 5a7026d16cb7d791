import { Failure } from '../../platform/http/route/errors.ts';
import {
  type Members,
  object,
  type Values,
  withDefault,
} from '../../platform/http/route/schema.ts';
import { type Html, NOTHING } from '../../platform/http/site/html.ts';
import { DAY_SECONDS } from '../../platform/runtime/duration.ts';
import { forbidden, invalid, may, refusalOf } from '../policy.ts';
import { choice } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { type PortalCall, recentUserForm, userForm } from '../signin/browser.ts';
import { form } from '../signin/forms.ts';
import { done, page, when } from '../signin/pages.ts';
import { changeForm } from '../signin/rows.ts';
import { formValues, type PageCall } from '../signin/templates.ts';
import { type Actor, actorOf } from '../store/audit.ts';
import * as clients from '../store/oidc/clients.ts';
import { listPrograms } from '../store/oidc/consents.ts';
import { endProgram } from '../store/oidc/grants.ts';
import { CLIENT_CHANGE, clientId, createSecret, NEW_CLIENT } from './clients.ts';
import { render, scopeItems } from './pages.ts';

/** The programs of a person, and for administrators all that are registered. */

export const PROGRAMS_PATH = '/account/programs';

const NEW_FIELDS = { ...NEW_CLIENT, secret: withDefault(choice, true, 'true') };

/** The form of a program, which a new one and one that is registered have in common. */
function clientForm(fields: Members, call: PageCall, stored: Readonly<Record<string, unknown>>) {
  const values = formValues('client', fields, call, stored);
  return { ...values, fields: render('client-fields', values) };
}

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

const stateOf = (enabled: boolean) => render(enabled ? 'enabled' : 'disabled');

/** For administrators. */
async function registered(call: PortalCall, { database, portal }: PortalService) {
  const rows = (await clients.listClients(database)).map(({ id, name, groups, enabled }) =>
    render('client', {
      id,
      name,
      groups: groups.join(', ') || 'every user',
      state: stateOf(enabled),
    }),
  );
  return render('registered', {
    ...clientForm(NEW_FIELDS, call, { id_token_seconds: NEW_CLIENT.id_token_seconds.fallback }),
    issuer: portal.origin,
    clients: rows.length > 0 ? rows : render('no-client'),
  });
}

/** Ends what a program has of the person who asks. */
export const endOwn = changeForm(
  userForm,
  { client_id: clientId },
  'The program has no access any more. It asks you again at the next sign-in.',
  ({ caller, request, body }, { database }) =>
    endProgram(database, actorOf(caller, request), body.client_id, caller.user.id),
  showPrograms,
);

/** Shown once: only its digest is stored. */
const shownSecret = (client: string, secret: string, { portal }: PortalService) =>
  render('client-secret', { client, secret, issuer: portal.origin });

export const registerClient = form(
  recentUserForm,
  NEW_FIELDS,
  async (call, service) => {
    const { body, caller, request } = call;
    const refused = refusalOf(caller, 'change programs');
    if (refused) return refused;
    const { secret: hasSecret, ...client } = body;
    const secret = hasSecret ? createSecret() : null;
    const actor = actorOf(caller, request);
    const isNew = await clients.insertClient(service.database, actor, client, secret);
    if (!isNew) return invalid('/id', 'is the id of another program');
    if (secret === null) return done(PROGRAMS_PATH, `The program ${client.name} is registered.`);
    return page('The program is registered', shownSecret(client.id, secret, service), call);
  },
  showPrograms,
);

// --- One program

export const clientPath = object({ client_id: clientId });
type OfClient = Values<Readonly<{ client_id: typeof clientId }>>;

export async function showClient(call: PortalCall<unknown, OfClient>, service: PortalService) {
  if (!may(call.caller, 'list programs')) return forbidden(call.caller);
  const client = await clients.findClient(service.database, call.path.client_id);
  if (!client) return NOT_FOUND;
  const { id, name, enabled } = client;
  const main = render('client-page', {
    ...clientForm(CLIENT_CHANGE, call, {
      ...client,
      redirect: client.redirect.join('\n'),
      logout_uri: client.logout_uri.join('\n'),
      groups: client.groups.join(', '),
    }),
    id,
    name,
    issuer: service.portal.origin,
    state: stateOf(enabled),
    secret: client.has_secret ? render('client-new-secret', { id }) : NOTHING,
    switch: render(enabled ? 'client-disable' : 'client-enable', { id, name }),
  });
  return page(name, main, call);
}

const NOT_FOUND = new Failure('not_found', { message: 'There is no such program any more.' });

/** @param apply returns how many programs it changed, or what is shown once */
const change = <M extends Members>(
  fields: M,
  notice: string,
  apply: (
    service: PortalService,
    actor: Actor,
    id: string,
    values: Values<M>,
  ) => Promise<number | null | Html>,
) =>
  changeForm(
    recentUserForm,
    fields,
    notice,
    async ({ caller, request, path, body }: PortalCall<unknown, OfClient, Values<M>>, service) => {
      const refused = refusalOf(caller, 'change programs');
      if (refused) return refused;
      const changed = await apply(service, actorOf(caller, request), path.client_id, body);
      return changed || NOT_FOUND;
    },
    showClient,
  );

const turn = (enabled: boolean, notice: string) =>
  change({}, notice, ({ database }, actor, id) =>
    clients.updateClient(database, actor, id, { enabled }),
  );

/** By the last part of their addresses. */
export const CLIENT_CHANGES = {
  edit: change(CLIENT_CHANGE, 'The program is changed.', ({ database }, actor, id, values) =>
    clients.updateClient(database, actor, id, values),
  ),
  enable: turn(true, 'Users may sign in at the program.'),
  disable: turn(false, 'Nobody may sign in at the program. Its tokens have ended.'),
  delete: change({}, 'The program is deleted.', ({ database }, actor, id) =>
    clients.deleteClient(database, actor, id),
  ),
  secret: change({}, 'The program has a new secret', async (service, actor, id) => {
    const secret = createSecret();
    const { database } = service;
    const replaced = await clients.replaceSecret(database, actor, id, secret, DAY_SECONDS);
    return replaced && shownSecret(id, secret, service);
  }),
};
