/** The complete lines of an output, each parsed once: tests poll logs of thousands of lines. */
export interface Lines<T> {
  /** Everything written so far. */
  text(): string;
  /** The values of the complete lines so far. */
  parsed(): T[];
  write(text: string): void;
}

/** @param parse returns nothing for a line to leave out */
export function createLines<T>(parse: (line: string) => readonly T[]): Lines<T> {
  const values: T[] = [];
  let text = '';
  let end = 0;
  return {
    text: () => text,
    parsed() {
      const complete = text.lastIndexOf('\n') + 1;
      if (complete > end)
        values.push(
          ...text
            .slice(end, complete - 1)
            .split('\n')
            .flatMap(parse),
        );
      end = complete;
      return [...values];
    },
    write: (more) => {
      text += more;
    },
  };
}
