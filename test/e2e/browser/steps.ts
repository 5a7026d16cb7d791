/** What tests do with a page, and wait for on it, beside the commands of WebDriver. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { makeDirectory } from '../../support/directories.ts';
import { until } from '../../support/until.ts';
import { findProgram } from '../programs.ts';
import type { Driver } from './webdriver.ts';

export type Browser = ReturnType<typeof withSteps>;

/** A directory for files of a browser, which runs as another user if this process is root. */
export function createFolder(): string {
  const directory = makeDirectory({ after }, 'browser');
  chmodSync(directory, 0o777);
  return directory;
}

/** What the page must show before a test goes on. */
function waitsOn(driver: Driver) {
  /** Waits until the page has this heading. */
  const untilHeading = (heading: string) =>
    driver.until(`[...document.querySelectorAll('h1')]
      .some((one) => one.checkVisibility() && one.innerText === ${JSON.stringify(heading)})`);
  return {
    untilHeading,
    /** Waits until the page at this address is complete. */
    untilAt: (address: string) =>
      driver.until(
        `location.href === ${JSON.stringify(address)} && document.readyState === 'complete'`,
      ),
    /** Waits until the page has this title, before the name of the site. */
    untilTitle: (title: string) =>
      driver.until(`document.title.startsWith(${JSON.stringify(`${title} ·`)})`),
    /** Waits until the page says in its heading that nothing can be done, and offers nothing. */
    async untilEnded(heading: string): Promise<void> {
      await untilHeading(heading);
      const controls: string[] = await driver.run(`
        const all = [...document.querySelectorAll('main :is(button, input, textarea, select)')];
        return all.filter((one) => one.checkVisibility()).map(({ id }) => id);`);
      assert.deepEqual([controls, await driver.title()], [[], heading]);
    },
    /** Waits for an error message: at a control, or at the button that caused it. */
    untilProblem: (pattern: RegExp) =>
      driver.until(`[...document.querySelectorAll('#problem, .error')]
        .some((one) => one.checkVisibility() && ${pattern}.test(one.innerText))`),
    /** The same at a field, with which screen readers announce it. */
    async untilFieldProblem(id: string, pattern: RegExp): Promise<void> {
      await driver.untilText(`${id}-error`, pattern);
      const announced = await driver.run(`
        const field = document.getElementById('${id}');
        const described = field.getAttribute('aria-describedby').split(' ')[0];
        return [field.ariaInvalid, described, document.getElementById(described).role];`);
      assert.deepEqual(announced, ['true', `${id}-error`, 'alert']);
    },
  };
}

/** Saves what the page shows. */
async function saveFile(driver: Driver): Promise<readonly [name: string, bytes: Buffer]> {
  const directory = createFolder();
  await driver.saveTo(directory);
  await driver.click('save');
  // The browser may still be writing it, beside an empty one or under another name.
  const saved = () =>
    readdirSync(directory)
      .filter((name) => !/download|\.part$/.test(name))
      .map((name) => [name, readFileSync(join(directory, name))] as const)
      .find(([, bytes]) => bytes.length > 0);
  await until(() => saved() !== undefined, 'the saved file');
  return saved() ?? assert.fail();
}

/**
 * Drops files with these sizes, full of sevens, on an element.
 * @returns whether the browser would open them: while they are dragged, and when they are dropped
 */
const dropFiles = (driver: Driver, id: string, sizes: readonly number[]): Promise<boolean[]> =>
  driver.run(
    `
    const [id, sizes] = arguments;
    const dataTransfer = new DataTransfer();
    for (const size of sizes)
      dataTransfer.items.add(new File([new Uint8Array(size).fill(7)], '7.bin'));
    const options = { dataTransfer, bubbles: true, cancelable: true };
    return ['dragover', 'drop'].map((kind) =>
      document.getElementById(id).dispatchEvent(new DragEvent(kind, options)));`,
    id,
    sizes,
  );

export function withSteps(driver: Driver) {
  return {
    ...driver,
    ...waitsOn(driver),
    /**
     * Starts from a blank page: an address that differs only in its fragment would not be loaded
     * again.
     */
    async load(address: string): Promise<void> {
      await driver.open('about:blank');
      await driver.open(address);
    },
    clipboard: (): Promise<string> => driver.runAsync('return navigator.clipboard.readText()'),
    /** The id of the focused element. */
    focused: (): Promise<string> => driver.run('return document.activeElement.id'),
    /** Console messages except for expected replies: policy violations and script errors remain. */
    async errors(): Promise<string[]> {
      const expected = /responded with a status of 4\d\d |net::ERR_INTERNET_DISCONNECTED/;
      return (await driver.log())
        .filter(({ source, message }) => source !== 'network' || !expected.test(message))
        .map(({ message }) => message);
    },
    saveFile: () => saveFile(driver),
    dropFiles: (id: string, ...sizes: readonly number[]) => dropFiles(driver, id, sizes),
    /** What zbar, a reader that many programs use, finds in the QR code of an element. */
    async readQrCode(selector: string): Promise<string> {
      const file = join(createFolder(), 'qr.png');
      writeFileSync(file, await driver.screenshot(selector));
      const program = findProgram('zbarimg') ?? 'zbarimg';
      return execFileSync(program, ['--quiet', '--raw', file], { encoding: 'utf8' }).trim();
    },
    /**
     * Requests of the page wait in `held` until a test sends them, or answers them.
     * @param which of the `address` and the `options` of a request; by default, all are held
     * @param reply in place of that of the service
     */
    holdFetch: (which = 'true', reply?: object) =>
      driver.run(
        `
        const [reply] = arguments;
        window.realFetch = fetch;
        window.held = [];
        window.answers = 0;
        window.fetch = async (address, options) => {
          if (!(${which})) return realFetch(address, options);
          await new Promise((resolve) => held.push(resolve));
          const answer = reply ? Response.json(reply) : await realFetch(address, options);
          const read = answer.json.bind(answer);
          // In a task of its own: by then, the page has used the answer.
          answer.json = () => read().finally(() => setTimeout(() => { window.answers += 1; }));
          return answer;
        };`,
        reply ?? null,
      ),
  };
}
