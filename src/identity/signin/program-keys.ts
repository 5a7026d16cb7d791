import { oneOf, optional, uuid, withDefault } from '../../platform/http/route/schema.ts';
import * as keys from '../keys.ts';
import { forbidden, may } from '../policy.ts';
import { groupList, rightList, scopeList } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { listKeys, NO_USER } from '../store/keys.ts';
import { FIRST_PAGE, keyItems, type ListQuery, NEW_KEY, showNewKey } from './account.ts';
import { type PortalCall, recentUserForm, userForm } from './browser.ts';
import { form } from './forms.ts';
import { accountPage, pager } from './pages.ts';
import { changeForm } from './rows.ts';
import { formValues } from './templates.ts';

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
  return accountPage(call, 'Keys of programs', 'program-keys', {
    keys: keyItems(listed, `${PATH}/revoke`, 'program-key-revoke'),
    pages: pager(PATH, range, listed.total),
    ...formValues('key', FIELDS, call, { days: '90', rights: 'verify' }),
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
  { key_id: uuid(), with_made: optional(oneOf('true')) },
  'The key is revoked.',
  (call, service) => {
    const { key_id, with_made } = call.body;
    return keys.revoke({ ...call, path: { key_id }, query: { with_made } }, service);
  },
  showProgramKeys,
);
