import { type BodyRule, json } from './body.ts';
import { Failure } from './errors.ts';
import { type Members, object, validate, type Values } from './shape.ts';

/** The fields of an HTML form. Each may be given once. */
export function form<M extends Members>(members: M): BodyRule<Values<M>> {
  const shape = object(members);
  return {
    ...json(shape),
    accepts({ 'content-type': contentType = '' }) {
      if (/^application\/x-www-form-urlencoded *(;|$)/i.test(contentType)) return null;
      return new Failure('unsupported_media_type', {
        message: 'Send the fields of the form as the page does.',
      });
    },
    parse(raw) {
      const fields = [...new URLSearchParams(raw.toString('utf8'))];
      const values = new Map(fields);
      if (values.size < fields.length)
        return { ok: false, errors: [{ path: '', message: 'has a field twice' }] };
      return validate(shape, Object.fromEntries(values), '');
    },
  };
}
