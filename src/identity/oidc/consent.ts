import { Failure } from '../../platform/http/route/errors.ts';
import { oneOf, text } from '../../platform/http/route/schema.ts';
import { userForm } from '../signin/browser.ts';
import { form } from '../signin/forms.ts';
import { continuePage } from '../signin/pages.ts';
import { insertConsent } from '../store/oidc/consents.ts';
import { answerAddress, CONSENT_MARK, consentMark, readRequest } from './authorize.ts';
import { AUTHORIZE_PATH } from './request.ts';

/** The form of the consent page. What it sends is checked anew. */
export const consent = form(
  userForm,
  { request: text({ max: 8_192 }), answer: oneOf('allow', 'deny') },
  async ({ body, caller }, service) => {
    const asked = await readRequest(new URLSearchParams(body.request), service);
    if (asked instanceof Failure || !('client' in asked)) return asked;
    const { client, parameters, authorization } = asked;
    const { origin } = service.portal;
    if (body.answer === 'deny') {
      const answer = { error: 'access_denied', error_description: 'the user refused' };
      const address = answerAddress(asked, answer, origin);
      return continuePage(address, 'continue', 'You are not signed in');
    }
    await insertConsent(service.database, client.id, caller.user.id, authorization.scopes);
    const query = new URLSearchParams(parameters);
    query.set(CONSENT_MARK, await consentMark(service, caller.session.id, parameters));
    return continuePage(`${origin}${AUTHORIZE_PATH}?${query}`);
  },
);
