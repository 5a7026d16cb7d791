import { type Command, flag, OperationFailed, type Terminal } from './command.ts';
import { orThrow } from './database.ts';
import { inIdentity, NEW_USER, onUser, readOptions } from './users.ts';
import type * as settings from '../identity/settings.ts';
import { createLink, hoursOf, makeLink } from '../identity/signin/links.ts';
import { COMMAND_LINE } from '../identity/store/audit.ts';
import { revokeLink } from '../identity/store/signin/links.ts';
import { createUser, newUserSchema } from '../identity/users.ts';

export const USER_LINK_COMMANDS: readonly Command[] = [
  {
    name: 'user invite',
    summary: 'Create a user without a password, and print a link with which they choose one',
    options: NEW_USER,
    async run(call) {
      const newUser = readOptions(newUserSchema, call);
      await inIdentity(call, async (database, settings) => {
        const portal = portalOf(settings);
        const { link, insert } = createLink(portal);
        const created = await createUser(database, COMMAND_LINE, newUser, settings, insert);
        const { username, id } = orThrow(created);
        call.note(`Created user "${username}" with id ${id}.`);
        printLink(call, link, portal);
      });
    },
  },
  {
    name: 'user link',
    summary: 'Print a link with which a user chooses a new password; it replaces the earlier one',
    positionals: 'USER',
    options: {
      'remove-factors': flag('and remove the second factors, without asking for one'),
      revoke: flag('end the current link, without a new one'),
    },
    async run(call) {
      await onUser(call, async ({ id, username }, database, settings) => {
        if (call.flag('revoke')) {
          const count = await revokeLink(database, COMMAND_LINE, id);
          const state = count === 1 ? 'Ended the link of user' : 'There is no open link of user';
          call.note(`${state} "${username}".`);
          return;
        }
        const portal = portalOf(settings);
        const removes = call.flag('remove-factors');
        const { link } = orThrow(await makeLink(database, portal, COMMAND_LINE, id, removes));
        const factors = removes ? ', and removes the second factors' : '';
        call.note(`With this link, user "${username}" chooses a new password${factors}.`);
        printLink(call, link, portal);
      });
    },
  },
];

function portalOf({ portal }: settings.IdentitySettings) {
  if (portal) return portal;
  throw new OperationFailed(
    'the link opens a sign-in page; set SIGNIN_PAGES=on and SIGNIN_ORIGIN as for the service',
  );
}

function printLink({ note, print }: Terminal, link: string, portal: settings.Portal) {
  note(`Link (shown only once, works once, within ${hoursOf(portal)} hours):`);
  print(link);
}
