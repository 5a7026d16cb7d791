/** Reads the forms of a page as a browser does. */

export type Attributes = Readonly<Record<string, string>>;
export interface Field {
  readonly name: string;
  readonly attributes: Attributes;
  /** What it holds: of a `<select>`, the chosen option. */
  readonly value: string;
  /** Of a `<select>`. */
  readonly options: readonly string[];
}
export interface Form {
  readonly action: string;
  readonly html: string;
  readonly hidden: Attributes;
  /** That a person sees. */
  readonly fields: readonly Field[];
  /** And those that nobody sees. */
  readonly controls: readonly Field[];
}

const decode = (text: string) =>
  text.replace(/&#(\d+);/g, (_, number: string) => String.fromCharCode(Number(number)));

function attributesOf(tag: string): Attributes {
  const found = tag.matchAll(/\s([a-z][a-z-]*)(?:="([^"]*)")?/g);
  return Object.fromEntries([...found].map(([, name = '', value = '']) => [name, decode(value)]));
}

/** The last one that is selected, as browsers choose. */
function chosenOf(options: readonly Attributes[]): string {
  const selected = options.filter(({ selected }) => selected !== undefined);
  return (selected.at(-1) ?? options[0])?.value ?? '';
}

/** The forms of a page. */
export function formsOn(text: string, method = 'post'): readonly Form[] {
  const forms = text.matchAll(/<form ([^>]*)>([^]*?)<\/form>/g);
  return [...forms].flatMap(([, tag = '', html = '']) => {
    const { action = '', method: given = 'get' } = attributesOf(` ${tag}`);
    if (given !== method) return [];
    const tags = html.matchAll(/<input([^>]*)>|<select([^>]*)>([^]*?)<\/select>/g);
    const controls = [...tags].map(([, input = '', select = '', inner]): Field => {
      const attributes = attributesOf(input + select);
      const options = [...(inner ?? '').matchAll(/<option([^>]*)>/g)].map(([, option = '']) =>
        attributesOf(option),
      );
      const isUnchecked = attributes.type === 'checkbox' && attributes.checked === undefined;
      const written = isUnchecked ? '' : (attributes.value ?? '');
      return {
        name: attributes.name ?? '',
        attributes,
        value: inner === undefined ? written : chosenOf(options),
        options: options.map(({ value = '' }) => value),
      };
    });
    const isHidden = ({ attributes }: Field) =>
      attributes.type === 'hidden' || attributes.hidden !== undefined;
    const hidden = controls.filter((field) => isHidden(field) && field.name !== '');
    return {
      action,
      html,
      controls,
      hidden: Object.fromEntries(hidden.map(({ name, value }) => [name, value])),
      fields: controls.filter((field) => !isHidden(field)),
    };
  });
}
