import { type Call, Failure, type Guard, type TextReply } from '../../platform/http/route/route.ts';
import { type BodyRule, invalidBody, json } from '../../platform/http/route/json-body.ts';
import {
  type Members,
  object,
  oneOf,
  optional,
  text,
  validate,
  type Values,
  withDefault,
} from '../../platform/http/route/schema.ts';
import { typedCode } from '../names.ts';
import { invalid } from '../policy.ts';
import { bytesOfPasswords, PASSWORD_MAX_UNITS, shownName } from '../rules.ts';
import type { PortalService } from '../service.ts';
import { type Repeated, SECRET, type Typed, type Visitor } from './templates.ts';

/** Fields of several forms. */
export const return_to = withDefault(
  text({ description: 'Where to go after signing in: an address of RETURN_ORIGINS' }),
  '',
);
export type ReturnInput = Readonly<{ return_to: string }>;
export const password = text({ max: PASSWORD_MAX_UNITS });
export const passwordAgain = optional(password);
export const code = text({
  max: 64,
  check: (typed) => (typedCode(typed) === '' ? 'must not be empty' : null),
});
/** Whether to stay signed in on this device, where the operator offers it. */
export const stay = optional(oneOf('on'));
/** What the browser returns for a passkey. */
export const PASSKEY_FIELDS = { credential: text({ max: 8_192 }), stay, return_to };
export const label = shownName(64, 1);

/** What a page may answer with. */
export const FAILURES = [
  'unauthorized',
  'invalid_credentials',
  'invalid_code',
  'invalid_passkey',
  'invalid_session',
  'invalid_body',
  'second_factor_needed',
  'signin_too_old',
  'too_many_requests',
  'key_unknown',
  'service_failed',
  'forbidden',
  'not_found',
  'conflict',
] as const;
type PageFailure = Failure<(typeof FAILURES)[number]>;
export type PageReply = TextReply | PageFailure;
export type PageHandler<Input, Service = PortalService> = (
  call: Input,
  service: Service,
) => Promise<PageReply>;

/** `madeFor`: the id of the user for whom the page made the form. */
type FormCall<Caller, Path, Body> = Call<Caller, Path, Record<never, never>, Body> &
  Readonly<{ madeFor?: string | undefined }>;

/** Whether the form is of a page of another account than the one that is signed in now. */
export const isOfAnother = (madeFor: string | undefined, user: Readonly<{ id: string }>) =>
  madeFor !== undefined && madeFor !== user.id;

/** As browsers and programs send the fields of a form. */
export const acceptsFields: BodyRule<unknown>['accepts'] = ({
  'content-type': contentType = '',
}) => {
  if (/^application\/x-www-form-urlencoded *(;|$)/i.test(contentType)) return null;
  return new Failure('unsupported_media_type', {
    message: 'Send the fields of a form, as application/x-www-form-urlencoded.',
  });
};

/** The part of a route that a form decides: who may send it, its fields, and what happens then. */
export type Form<Caller, Path, Service = PortalService> = Readonly<{
  guard: Guard<PortalService, Caller>;
  body: BodyRule<Typed>;
  handle: PageHandler<FormCall<Caller, Path, Typed>, Service>;
}>;

/**
 * @param fields of an HTML form
 * @param showAgain the page of the form, where the user can try again after a failure
 */
export const form = <
  Caller extends Visitor,
  Path,
  M extends Members,
  Service extends PortalService = PortalService,
>(
  guard: Guard<PortalService, Caller>,
  fields: M,
  action: PageHandler<FormCall<Caller, Path, Values<M>>, Service>,
  showAgain?: PageHandler<FormCall<Caller, Path, Typed> & Readonly<{ repeated: Repeated }>>,
): Form<Caller, Path, Service> => {
  const schema = object(fields);
  const passwords = Object.keys(fields).filter((name) => /password|repeated/.test(name));
  return {
    guard,
    body: {
      ...json(schema),
      formSchema: schema.jsonSchema,
      leastBytes: passwords.length > 0 ? bytesOfPasswords(passwords.length) : 0,
      accepts: acceptsFields,
      // Each field may be given once.
      parse(raw) {
        const pairs = [...new URLSearchParams(raw.toString('utf8'))];
        if (new Map(pairs).size < pairs.length) return invalidBody('has a field twice');
        // Keyboards of phones add a space after a word.
        const read = pairs.map(([name, value]) => [name, SECRET.test(name) ? value : value.trim()]);
        return Object.fromEntries(read);
      },
    },
    async handle(call, service) {
      const { body: typed, caller } = call;
      const { account: madeFor } = typed;
      if (caller?.user && isOfAnother(madeFor, caller.user)) {
        const message = `This page was opened with another account. Now you are signed in as ${caller.user.username}. Nothing was changed. Open the page again, or sign in as the other user.`;
        return new Failure('conflict', { message });
      }
      // A password that is typed blind is typed twice.
      const { password, new_password = password, repeated = new_password } = typed;
      const body =
        repeated === new_password
          ? validate(schema, typed, 'invalid_body')
          : invalid('/repeated', 'must be the same as the new password');
      const outcome =
        body instanceof Failure ? body : await action({ ...call, body, madeFor }, service);
      if (!showAgain || !(outcome instanceof Failure)) return outcome;
      // A user without the right does not see the page either.
      if (outcome.code === 'forbidden') return outcome;
      const failed = { fields, typed, failure: outcome };
      const shown = await showAgain({ ...call, repeated: failed }, service);
      if (shown instanceof Failure) return shown;
      return new Failure(outcome.code, { ...outcome.details, page: shown });
    },
  };
};
