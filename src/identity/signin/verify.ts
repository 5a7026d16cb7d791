import { digest } from '../../crypto/token.ts';
import type { Call, Guard } from '../../http/call.ts';
import { Failure } from '../../http/errors.ts';
import { activeSession, bearerOrCookie, cookieOf, createGuard, sessionCookie } from '../guard.ts';
import { type Caller, forbidden } from '../policy.ts';
import type { PortalService } from '../service.ts';
import { parseSessionToken } from '../token.ts';
import { verify } from '../verify.ts';
import { DOMAIN_COOKIE, HOST_COOKIE, isNavigation, originalAddress } from './browser.ts';
import { findByDomainToken, findByHostToken, type Proof } from './store.ts';

/** A caller, and how and when they signed in: null for an API key. */
type Proven = Readonly<{ caller: Caller; proof: Proof | null }>;

/** `redirect`: the status with which the proxy sends browsers to the portal; nginx passes on only 401. */
type VerifyQuery = Readonly<{
  require: 'super_admin' | 'second_factor' | undefined; max_age: number | undefined;
  redirect: '302' | '401' | undefined;
}>;

const others = createGuard(bearerOrCookie.security, sessionCookie, findByHostToken);

/** Also by a cookie of the portal. Null in place of 401: the handler knows whether the proxy wants a redirect. */
export const portalVisitor: Guard<PortalService, Proven | null> = {
  security: [...others.security, 'portal_cookie'],
  errors: others.errors,
  async check(request, service) {
    const { headers, network } = request;
    const isShared = service.portal.cookieDomain !== null;
    const [name, find] = isShared ? [DOMAIN_COOKIE, findByDomainToken] : [HOST_COOKIE, findByHostToken];
    // Other schemes of `Authorization` are for the program behind the proxy.
    const hasOther = /^bearer\b/i.test(headers.authorization ?? '') || headers['x-api-key'] !== undefined;
    const token = hasOther ? null : cookieOf(headers, name);
    // Given twice, it was planted: no other cookie takes its place.
    if (!hasOther && token === null && headers.cookie?.includes(`${name}=`)) return null;
    if (token !== null) {
      const key = isShared ? digest(token).toString('hex') : parseSessionToken(token);
      const session = await activeSession(key, network, service, find);
      return session instanceof Failure ? null : { caller: { session, key: null, user: session.user }, proof: session };
    }
    const caller = await others.check(request, service);
    return caller instanceof Failure ? null : { caller, proof: caller.session };
  },
};

/** Forward authentication with the portal: a browser that must sign in, or again, is sent to the portal. */
export async function verifyOrSignIn(
  { caller: proven, request, query }: Call<Proven | null, unknown, VerifyQuery, null>, { portal }: PortalService,
) {
  if (!proven) return signIn('unauthorized');
  const [{ caller, proof }, { require, max_age: maxAge }] = [proven, query];
  // An API key is no person who could sign in again.
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
  return { data: null, headers: { 'X-Auth-Methods': proof?.methods ?? '', 'X-Auth-Time': time, ...reply.headers } };

  function signIn(code: 'unauthorized' | 'signin_too_old' | 'second_factor_needed', path = '/login') {
    if (query.redirect === undefined || !isNavigation(request.headers)) return new Failure(code);
    const address = originalAddress(request.headers, request.isFromProxy, portal);
    const target = new URL(path, portal.origin);
    if (address !== null) target.searchParams.set('return_to', address);
    if (code !== 'unauthorized' && path === '/login') target.searchParams.set('again', 'on');
    return new Failure(query.redirect === '302' ? 'signin_needed' : code, { headers: { Location: target.href } });
  }
}
