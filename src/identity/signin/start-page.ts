import { Failure, route, type ServiceFacts } from '../../platform/http/route/route.ts';
import { landing, landingRow } from '../../platform/http/site/built-in-routes.ts';
import type { Site } from '../../platform/runtime/context.ts';
import { readVersion } from '../../platform/runtime/version.ts';
import type { PortalService } from '../service.ts';
import { signedInUserOf } from './browser.ts';

const SIGN_IN = { path: '/login', label: 'Sign in' };
const ACCOUNT = { path: '/account', label: 'Your account' };

/** Says who is signed in and, to administrators alone, which version runs. */
export const startPage = (site: Site, facts: ServiceFacts) =>
  route({
    ...landingRow,
    errors: [...landingRow.errors, 'service_failed'],
    async handle({ request }, service: PortalService) {
      const caller = await signedInUserOf(request, service);
      if (caller instanceof Failure) return landing(request, site, facts, [SIGN_IN]);
      const { username, super_admin } = caller.user;
      const running = super_admin ? ` Gatehouse ${readVersion()} runs here.` : '';
      const state = `You are signed in as ${username}.${running}`;
      return landing(request, site, facts, [ACCOUNT], state);
    },
  });
