/** What a page of a program asks for by itself gets 401, and no sign-in page. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { APP, type SigninSetup } from './setup.ts';

/** What each way to ask for a resource leads to, in the order of time. */
const TRY_ALL = `
      const asked = async (init) => {
        const { status, redirected, url } = await fetch('/data?x=1', init);
        return [status, redirected, new URL(url).host];
      };
      const settled = (make, good, bad) => new Promise((resolve) => {
        const one = make();
        one.addEventListener(good, () => resolve(true));
        one.addEventListener(bad, () => resolve(false));
      });
      const image = () => Object.assign(new Image(), { src: '/image?' + Math.random() });
      const frame = Object.assign(document.createElement('iframe'), { src: '/frame' });
      await new Promise((resolve) => {
        frame.addEventListener('load', resolve);
        document.body.append(frame);
      });
      return {
        fetch: await asked({}), manual: (await fetch('/data', { redirect: 'manual' })).type,
        post: await asked({ method: 'POST', body: 'x=1' }),
        html: await asked({ headers: { Accept: 'text/html' } }),
        socket: await settled(() => new WebSocket('wss://app.example.org/socket'), 'open', 'error'),
        events: await settled(() => new EventSource('/events'), 'message', 'error'),
        image: await settled(image, 'load', 'error'),
        framed: frame.contentDocument?.title === 'Program',
      };`;

const UNAUTHENTICATED = {
  fetch: [401, false, 'app.example.org'],
  manual: 'basic',
  post: [401, false, 'app.example.org'],
  html: [401, false, 'app.example.org'],
  socket: false,
  events: false,
  image: false,
  framed: false,
};
const AUTHENTICATED = {
  fetch: [200, false, 'app.example.org'],
  manual: 'basic',
  post: [200, false, 'app.example.org'],
  html: [200, false, 'app.example.org'],
  socket: true,
  events: true,
  image: true,
  framed: true,
};

export function addSubresourceTests(setup: SigninSetup): void {
  const { browser, upstream } = setup;

  test('fetch, WebSocket, EventSource, image and frame get 401 and are not redirected', async () => {
    const { username } = await setup.addMember();
    await browser.open(`${APP}/status`);
    const before = upstream.requests.length;
    assert.deepEqual(await browser.runAsync(TRY_ALL), UNAUTHENTICATED);
    assert.equal(upstream.requests.length, before, 'the program received nothing');
    await setup.visitAs(username, `${APP}/a`);
    assert.deepEqual(await browser.runAsync(TRY_ALL), AUTHENTICATED);
  });

  test('a form gets 401 and is not redirected', async () => {
    await browser.open(`${APP}/status`);
    const before = upstream.requests.length;
    await browser.run(`
      const form = document.createElement('form');
      Object.assign(form, { method: 'post', action: '/order?x=1' });
      document.body.append(form);
      form.submit();`);
    await browser.until('location.pathname === "/order" && document.readyState === "complete"');
    assert.equal(await browser.address(), `${APP}/order?x=1`);
    assert.equal(upstream.requests.length, before, 'the program received nothing');
  });
}
