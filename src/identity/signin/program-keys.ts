import { oneOf, optional, uuid, withDefault } from '../../platform/http/route/schema.ts';
import * as keys from '../keys.ts';
import { forbidden, invalid, may } from '../policy.ts';
import { KEY_RIGHTS } from '../model.ts';
import { groupList, scopeList } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { listKeys, NO_USER } from '../store/keys.ts';
import { FIRST_PAGE, keyForm, keyItems, type ListQuery, NEW_KEY, showNewKey } from './account.ts';
import { type PortalCall, recentUserForm, userForm } from './browser.ts';
import { form } from './forms.ts';
import { accountPage, pager } from './pages.ts';
import { changeForm } from './rows.ts';

/** Keys without a user, for administrators. */

const PATH = '/account/program-keys';

const checkbox = optional(oneOf('on'));

const FIELDS = {
  ...NEW_KEY,
  verify: checkbox,
  read: checkbox,
  revoke: checkbox,
  provision: checkbox,
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
    ...keyForm(FIELDS, call),
  });
}

export const createProgramKey = form(
  recentUserForm,
  FIELDS,
  async (call, service) => {
    const { body } = call;
    const rights = KEY_RIGHTS.filter((right) => body[right]);
    if (rights.length === 0) return invalid('/verify', 'choose at least one right');
    return showNewKey(call, service, { ...body, rights: rights.sort(), user_id: null }, PATH);
  },
  showProgramKeys,
);

export const revokeProgramKey = changeForm(
  userForm,
  { key_id: uuid(), ...keys.revokeQuery },
  'The key is revoked.',
  (call, service) => keys.revoke({ ...call, path: call.body, query: call.body }, service),
  showProgramKeys,
);
