import { ERRORS, type Failure } from '../../platform/http/route/errors.ts';
import { NOTHING, readTemplates, type Values } from '../../platform/http/site/html.ts';
import type { RequestInfo } from '../../platform/http/route/route.ts';
import type { Members } from '../../platform/http/route/schema.ts';
import type { Caller } from '../policy.ts';

export const render = readTemplates(import.meta.url, 'pages/pages.html');

/** What went wrong and how long to wait, for the user. */
function errorMessage({ code, details }: Failure) {
  const { fields = [], retryAfterSeconds: wait } = details;
  const problems = fields.map(
    ({ path, message }) => `${path.replace('/', '') || 'the form'} ${message}`,
  );
  if (problems.length > 0) return sentence(problems.join('; '));
  if (wait === undefined) return details.message ?? ERRORS[code][1];
  const time = wait > 90 ? `${Math.ceil(wait / 60)} minutes` : `${Math.ceil(wait)} seconds`;
  return `Too many attempts. Try again in ${time}.`;
}

const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

export const renderAlert = (failure: Failure) =>
  render('alert', { message: errorMessage(failure) });

// --- Forms

/** The fields of a form as the browser sent them. */
export type Typed = Readonly<Record<string, string>>;

/** A form that is shown again: its fields, what was typed, and why it was not accepted. */
export type Repeated = Readonly<{
  fields: Members;
  typed: Typed;
  failure: Failure;
}>;

/** A request for a page, perhaps by a form that the page shows again. */
export type PageCall = Readonly<{
  request?: RequestInfo;
  repeated?: Repeated;
  caller?: Visitor;
  /** The id of the user for whom the forms are, if not the caller. */
  account?: string;
}>;

/** Null for nobody who is signed in. */
export type Visitor = Pick<Caller, 'user'> | null;

const HIDDEN = new Set([
  'return_to',
  'setup',
  'credential',
  'stay',
  'session_id',
  'key_id',
  'keys',
  'passkey',
]);
/** Read as it is, and never written into a page. */
export const SECRET = /password|^(repeated|code)$/;
/** Keyboards change nothing in them, and browsers send them to no spelling checker. */
const VERBATIM =
  /password|^(repeated|code|username|email|.*groups?|scopes|user|search|token|id|.*uri|redirect)$/;

/** The names of the fields that the user sees. */
const shownFields = (fields: Members) => Object.keys(fields).filter((name) => !HIDDEN.has(name));

export const renderIf = (isShown: boolean | undefined, template: string, values: Values = {}) =>
  isShown ? render(template, values) : NOTHING;

/**
 * What the template of a page needs for a form, for the first time and again. A field `role` of the
 * form `new` has `{{new.role}}` for its value, `{{new.role.state}}` in its tag,
 * `{{new.role.problem}}` after it, and `{{new.role.user}}` in the option `user`. What was typed is
 * kept. The first field with a problem, or the password, gets the focus, otherwise the one with
 * `{{new.focus}}`.
 * @param stored what the fields hold before the user changes them
 */
export function formValues(
  form: string,
  fields: Members,
  { repeated }: PageCall,
  stored: Readonly<Record<string, unknown>> = {},
): Values {
  const sent = repeated?.fields === fields ? repeated : null;
  const problems = new Map(
    sent?.failure.details.fields?.map(({ path, message }) => [path.slice(1), sentence(message)]),
  );
  const names = shownFields(fields);
  const faulty = names.filter((name) => problems.has(name));
  const password = names.find((name) => name.includes('password'));
  const focused = sent ? (faulty[0] ?? password) : undefined;
  const isFormWrong = faulty.length < Math.max(1, problems.size);
  const values: Record<string, Values[string]> = {
    [`${form}.focus`]: renderIf(focused === undefined, 'autofocus'),
    [`${form}.open`]: renderIf(sent !== null, 'open'),
    [`${form}.alert`]: sent && isFormWrong ? renderAlert(sent.failure) : NOTHING,
  };
  for (const name of names) {
    const message = problems.get(name);
    const isFaulty = message !== undefined;
    const { enum: options = [] } = fields[name]?.jsonSchema ?? {};
    const initial = String(stored[name] ?? '');
    const typed = sent?.typed[name] ?? initial;
    // Only an option of its own is chosen.
    const chosen = options.includes(typed) ? typed : initial;
    const mark = options.length > 1 ? 'selected' : 'checked';
    const at = `${form}.${name}`;
    if (!SECRET.test(name)) values[at] = typed;
    values[`${at}.state`] = [
      renderIf(isFaulty, 'invalid'),
      renderIf(name === focused, 'autofocus'),
      renderIf(VERBATIM.test(name), 'verbatim'),
    ];
    values[`${at}.problem`] = isFaulty ? render('field-problem', { name, message }) : NOTHING;
    for (const option of options) {
      values[`${at}.${option}`] = renderIf(option === chosen, mark);
    }
  }
  return values;
}
