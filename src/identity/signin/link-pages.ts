import { sha256 } from '../../crypto/token.ts';
import { Failure } from '../../http/errors.ts';
import { text } from '../../http/schema.ts';
import { NOTHING } from '../../http/html.ts';
import { actorOf } from '../store/audit.ts';
import { findLink, type Link } from '../store/signin/links.ts';
import { findUser } from '../store/users.ts';
import { tokenDigest } from './browser.ts';
import { form } from './forms.ts';
import { portalForm, signedInUserOf } from './guards.ts';
import { page, render } from './pages.ts';
import { beginStep } from './steps.ts';

/** Loading it changes nothing. A script takes the token from the address, and sends the form. */
export const showLink = async () => page('Open your link', render('link'));

const INCOMPLETE = 'The link is not complete. Copy all of it, up to its last character.';
const ENDED =
  'This link cannot be used, or not any more. Each works once, for some days, at the service that made it, and only the newest one does. If you have set your password, sign in. Otherwise ask an administrator for a new link.';

/** The person may have copied only the token, or the whole address. */
const tokenIn = (typed: string) => typed.trim().replace(/^.*#/s, '');

/**
 * This does not use the link: the next step asks for a second factor, or for the new password. A
 * wrong token counts as a guess of the network. One of a link that has ended does not.
 */
export const openLink = form(
  portalForm,
  { token: text({ max: 2_048 }) },
  async ({ body, request }, service) => {
    const { database } = service;
    const token = tokenIn(body.token);
    const digest = tokenDigest(token);
    const link: Link | Failure<'unauthorized' | 'too_many_requests'> =
      await service.checkCredential(request.network, {
        kind: 'link',
        digest,
        message: digest === null ? INCOMPLETE : ENDED,
        find: () => findLink(database, actorOf(null, request), sha256(token)),
        isAllowed: ({ is_open }) => is_open,
      });
    if (link instanceof Failure) return link;
    const user = await findUser(database, link.user_id);
    if (!user) return new Failure('unauthorized', { message: ENDED });
    const signedIn = await signedInUserOf(request, service);
    const isOther = !(signedIn instanceof Failure) && signedIn.user.id !== user.id;
    const notice = isOther
      ? render('other-user', { other: signedIn.user.username, username: user.username })
      : NOTHING;
    return beginStep(service, { user, methods: null, link }, '', notice);
  },
  showLink,
);
