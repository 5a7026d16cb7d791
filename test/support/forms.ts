/** Reads the forms of a page as a browser does. */

export type Attributes = Readonly<Record<string, string>>;
export type Form = ReturnType<typeof formsOn>[number];
export type Field = Form['controls'][number];

export const decode = (text: string) =>
  text.replace(/&#(\d+);/g, (_, number: string) => String.fromCharCode(Number(number)));

function attributesOf(tag: string): Attributes {
  const found = tag.matchAll(/\s([a-z][a-z-]*)(?:="([^"]*)")?/g);
  return Object.fromEntries([...found].map(([, name = '', value = '']) => [name, decode(value)]));
}

/**
 * @param inner of a `<select>` or a `<textarea>`
 * @returns `value`: what it holds; of a `<select>`, the last option that is selected
 */
function fieldOf(tag: string, inner = '') {
  const attributes = attributesOf(tag);
  const { name = '', type, value = '', checked } = attributes;
  const options = [...inner.matchAll(/<option([^>]*)>/g)].map(([, option = '']) =>
    attributesOf(option),
  );
  const chosen = options.filter(({ selected }) => selected !== undefined).at(-1) ?? options[0];
  const written = type === 'checkbox' && checked === undefined ? '' : value;
  return {
    name,
    attributes,
    value: chosen?.value ?? (decode(inner) || written),
    options: options.map((option) => option.value ?? ''),
    isHidden: type === 'hidden' || attributes.hidden !== undefined,
  };
}

/** The forms of a page. `fields`: that a person sees. */
export function formsOn(text: string, method = 'post') {
  const forms = text.matchAll(/<form( [^>]*)>([^]*?)<\/form>/g);
  return [...forms].flatMap(([, tag = '', html = '']) => {
    const { action = '', method: given = 'get' } = attributesOf(tag);
    if (given !== method) return [];
    const tags = html.matchAll(/<input([^>]*)>|<(select|textarea)([^>]*)>([^]*?)<\/\2>/g);
    const controls = [...tags].map(([, input, , other, inner]) =>
      fieldOf(input ?? other ?? '', inner),
    );
    const hidden = controls.filter(({ isHidden, name }) => isHidden && name !== '');
    return {
      action,
      html,
      controls,
      hidden: Object.fromEntries(hidden.map(({ name, value }) => [name, value])),
      fields: controls.filter(({ isHidden }) => !isHidden),
    };
  });
}
