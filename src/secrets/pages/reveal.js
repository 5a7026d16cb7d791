import { splitKeys } from '/pages/envelope.js';
import { offerSecret } from '/pages/opening.js';

const PATH = /^(\/s\/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/?$/i;

function readLink() {
  const [, path = ''] = PATH.exec(location.pathname) ?? [];
  const keys = splitKeys(location.hash.slice(1));
  return path === '' || !keys ? null : { path, ...keys };
}

void offerSecret(readLink);
addEventListener('hashchange', () => {
  void offerSecret(readLink);
});
