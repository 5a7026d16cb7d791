import { element, whileBusy } from '/pages/page.js';

/**
 * Asks before something that cannot be undone: `#sure` has a button to confirm and one to cancel.
 * @param {HTMLButtonElement} button
 * @param {() => Promise<void>} work
 * @returns shows the question, or the button again
 */
export function askBefore(button, work) {
  const cancel = element('cancel', HTMLButtonElement);
  const confirm = element('confirm', HTMLButtonElement);
  /** @param {boolean} isAsking */
  const ask = (isAsking) => {
    element('sure', HTMLElement).hidden = !isAsking;
    button.hidden = isAsking;
    (isAsking ? cancel : button).focus();
  };
  button.addEventListener('click', () => ask(true));
  cancel.addEventListener('click', () => ask(false));
  confirm.addEventListener('click', () => {
    void whileBusy(confirm, work);
  });
  return ask;
}
