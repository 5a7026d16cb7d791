import { takeLink } from '/pages/address.js';
import { splitKeys } from '/pages/envelope.js';
import { offerSecret } from '/pages/opening.js';

function readLink() {
  const link = takeLink('s');
  const keys = link && splitKeys(link.keys);
  return keys && { path: `/s/${link.id}`, ...keys };
}

void offerSecret(readLink);
// For a link that is opened in the same tab, too.
addEventListener('popstate', () => {
  void offerSecret(readLink);
});
