import type { Call } from '../../http/call.ts';
import { Failure } from '../../http/errors.ts';
import { decimal, type Infer, oneOf, optional, queryParameters } from '../../http/shape.ts';
import { forbidden } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { verify } from '../verify.ts';
import { isNavigation, originalAddress } from './browser.ts';
import type { Visitor } from './guards.ts';

/** Unknown parameters are rejected, because a misspelled `require` must not admit everyone. */
export const verifyQuery = queryParameters({
  require: optional(oneOf('super_admin', 'second_factor')),
  max_age: optional(
    decimal({ min: 1, max: 366 * 86_400, description: 'Seconds since the person signed in' }),
  ),
  // The status with which the proxy sends browsers to the portal; nginx passes on only 401.
  redirect: optional(oneOf('302', '401')),
});

type Ask = Call<Visitor, unknown, Infer<typeof verifyQuery>, null>;

/** Forward authentication with the portal: a browser that must sign in, or again, is sent to the portal. */
export async function verifyOrSignIn({ caller, request, query }: Ask, { portal }: PortalService) {
  if ('refused' in caller) return signIn('unauthorized', '/login', caller.refused.details);
  const [{ session: proof }, { require, max_age: maxAge }] = [caller, query];
  // The holder of an API key cannot sign in again.
  if (!proof && (maxAge !== undefined || require === 'second_factor')) return forbidden(caller);
  if (proof && proof.age > (maxAge ?? Infinity)) return signIn('signin_too_old');
  // A passkey alone has verified its user: two factors in one.
  if (proof && require === 'second_factor' && proof.methods === 'password') {
    return signIn('second_factor_needed', proof.has_factor ? '/login' : '/account/factors');
  }
  const role = require === 'super_admin' ? require : undefined;
  const reply = await verify({ request, caller, path: {}, query: { require: role }, body: null });
  if (reply instanceof Failure) return reply;
  const time = proof ? String(Math.floor(proof.at.getTime() / 1000)) : '';
  return {
    data: null,
    headers: { 'X-Auth-Methods': proof?.methods ?? '', 'X-Auth-Time': time, ...reply.headers },
  };

  function signIn(
    code: 'unauthorized' | 'signin_too_old' | 'second_factor_needed',
    path = '/login',
    details = {},
  ) {
    if (query.redirect === undefined || !isNavigation(request.headers))
      return new Failure(code, details);
    const address = originalAddress(request.headers, request.isFromProxy, portal);
    const target = new URL(path, portal.origin);
    if (address !== null) target.searchParams.set('return_to', address);
    if (code !== 'unauthorized' && path === '/login') target.searchParams.set('again', 'on');
    const headers = { Location: target.href };
    return new Failure(query.redirect === '302' ? 'signin_needed' : code, { ...details, headers });
  }
}
