import { type Env, list, matching, satisfying } from '../../runtime/env.ts';

/** What names the user of a request without a token: a proxy, or the identity service. */
export type UserSource = ReturnType<typeof readUserSource>;

const headerName = matching(/^[A-Za-z0-9-]{1,64}$/, 'the name of a header');
const verifyAddress = satisfying(
  (text) => /^https?:\/\/[^\s/?#@]+\/\S+$/.test(text) && URL.canParse(text),
  'the http or https address of the verify endpoint',
);

export function readUserSource(env: Env) {
  const source = {
    TRUSTED_USER_HEADER: env.get('TRUSTED_USER_HEADER', null, headerName),
    TRUSTED_ID_HEADER: env.get('TRUSTED_ID_HEADER', null, headerName),
    TRUSTED_GROUPS_HEADER: env.get('TRUSTED_GROUPS_HEADER', null, headerName),
    SIGNIN_VERIFY_URL: env.get('SIGNIN_VERIFY_URL', null, verifyAddress),
  };
  if (source.TRUSTED_USER_HEADER !== null && !env.isSet('TRUSTED_PROXIES'))
    env.problem('TRUSTED_USER_HEADER', 'requires TRUSTED_PROXIES: no other sender is believed.');
  for (const name of ['TRUSTED_GROUPS_HEADER', 'TRUSTED_ID_HEADER'] as const) {
    if (source[name] !== null && !env.isSet('TRUSTED_USER_HEADER'))
      env.problem(name, 'requires TRUSTED_USER_HEADER.');
  }
  return source;
}

const userOrGroup = matching(
  /^(?!group:)|^group:[a-z0-9._-]{1,64}$/,
  'a username, group:NAME or *',
);

/** Users by name or by group, or all of them. Nothing may name users without such a source. */
export function readUsers(env: Env, name: string) {
  const users = env.get(name, [], list(userOrGroup));
  const hasGroup = users.some((user) => user.startsWith('group:'));
  const header = hasGroup ? 'TRUSTED_GROUPS_HEADER' : 'TRUSTED_USER_HEADER';
  const hasSource = env.isSet(header) || env.isSet('SIGNIN_VERIFY_URL');
  if (users.length > 0 && !hasSource) env.problem(name, `requires ${header} or SIGNIN_VERIFY_URL.`);
  return users;
}
