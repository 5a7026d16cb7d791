/** The bar chart of received and dead events, from the numbers of the server. */
import { counted } from '/pages/inbox-format.js';

/** @typedef {{ from: string, received: number, dead: number }} Bar */

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 600;
const HEIGHT = 100;

/** @param {string} name @param {Record<string, string | number>} attributes */
function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes))
    made.setAttribute(attribute, String(value));
  return made;
}

/**
 * @param {Element} chart an SVG element
 * @param {HTMLElement} caption
 * @param {readonly Bar[]} bars
 * @param {string} span such as "last hour"
 */
export function drawChart(chart, caption, bars, span) {
  const most = Math.max(0, ...bars.map(({ received, dead }) => Math.max(received, dead)));
  const width = WIDTH / Math.max(1, bars.length);
  const scale = (/** @type {number} */ value) =>
    value === 0 ? 0 : Math.max(2, (value / most) * (HEIGHT - 2));
  const columns = bars.flatMap(({ from, received, dead }, at) => {
    const label = document.createElementNS(SVG, 'title');
    const time = new Date(from).toLocaleTimeString(undefined, { timeStyle: 'short' });
    label.textContent = `${time}: ${received} received, ${dead} dead`;
    const bar = (
      /** @type {string} */ tone,
      /** @type {number} */ value,
      /** @type {number} */ part,
    ) =>
      shape('rect', {
        class: tone,
        x: at * width + width * 0.1,
        width: width * part,
        y: HEIGHT - scale(value),
        height: scale(value),
      });
    const column = shape('g', {});
    column.append(label, bar('good', received, 0.8), bar('bad', dead, 0.4));
    return [column];
  });
  chart.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  const axis = shape('line', { class: 'axis', x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT });
  chart.replaceChildren(...columns, axis);
  const sum = (/** @type {'received' | 'dead'} */ name) =>
    bars.reduce((total, bar) => total + bar[name], 0);
  const text = `${counted(sum('received'), 'event')} received and ${sum('dead').toLocaleString()} dead in the ${span}.`;
  chart.setAttribute('aria-label', text);
  caption.textContent =
    most === 0 ? `No event in the ${span}.` : `${text} Highest bar: ${most.toLocaleString()}.`;
}
