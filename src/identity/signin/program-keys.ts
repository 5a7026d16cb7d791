import { uuid, withDefault } from '../../platform/http/route/schema.ts';
import * as keys from '../keys.ts';
import { forbidden, may } from '../policy.ts';
import { groupList, rightList, scopeList } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { listKeys, NO_USER } from '../store/keys.ts';
import { FIRST_PAGE, keyForm, keyItems, type ListQuery, NEW_KEY, showNewKey } from './account.ts';
import { type PortalCall, recentUserForm, userForm } from './browser.ts';
import { form } from './forms.ts';
import { accountPage, pager } from './pages.ts';
import { changeForm } from './rows.ts';

/** Keys without a user, for administrators. */

const PATH = '/account/program-keys';

const FIELDS = {
  ...NEW_KEY,
  rights: rightList,
  scopes: withDefault(scopeList, [], ''),
  groups: withDefault(groupList, [], ''),
  provision_groups: withDefault(groupList, [], ''),
};

export async function showProgramKeys(
  call: PortalCall<Partial<ListQuery>>,
  { database }: PortalService,
) {
  const { caller } = call;
  if (!may(caller, 'list keys of every user')) return forbidden(caller);
  const range = { ...FIRST_PAGE, ...call.query };
  const listed = await listKeys(database, range, NO_USER);
  return accountPage(call, 'Program keys', 'program-keys', {
    keys: keyItems(listed, `${PATH}/revoke`, 'program-key-revoke'),
    pages: pager(PATH, range, listed.total),
    ...keyForm(FIELDS, call, 'verify'),
  });
}

export const createProgramKey = form(
  recentUserForm,
  FIELDS,
  (call, service) => showNewKey(call, service, { ...call.body, user_id: null }, PATH),
  showProgramKeys,
);

export const revokeProgramKey = changeForm(
  userForm,
  { key_id: uuid(), ...keys.revokeQuery },
  'The key is revoked.',
  (call, service) => keys.revoke({ ...call, path: call.body, query: call.body }, service),
  showProgramKeys,
);
