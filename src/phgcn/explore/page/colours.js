// @ts-check
"use strict";

/** Nodes that share a colour, and one line of the legend.
 * @typedef {{label: string, colour: string, symbol: string, nodes: Int32Array}} Group
 */

/** Okabe and Ito's colours and two more, which colour-blind readers can tell apart; beyond these, other symbols. */
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#666666"];
const SYMBOLS = ["circle", "square", "triangle-up", "cross", "diamond", "x", "triangle-down", "star"];
const NONE = "#b0b0b0";

/** Weights below this share of the largest look like the weakest. */
const WEAKEST = 1e-4;

/** From little to much: viridis, which is read as growing without its hues too. */
const SCALE = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];

/** A column whose largest number is so many times its median is cut into bins by its logarithm. */
const SKEWED = 20;

/**
 * Splits nodes by an index from -1 on.
 * @param {ArrayLike<number>} index
 * @param {number} count
 * @returns {Int32Array[]} The nodes of index 0, 1, ..., and at last those of -1.
 */
function nodesByIndex(index, count) {
  const sizes = new Int32Array(count + 1);
  const place = (/** @type {number} */ value) => (value < 0 || value >= count ? count : value);
  for (let node = 0; node < index.length; node++) sizes[place(index[node])] += 1;
  const lists = Array.from(sizes, (size) => new Int32Array(size));
  const ends = new Int32Array(count + 1);
  for (let node = 0; node < index.length; node++) {
    const kind = place(index[node]);
    lists[kind][ends[kind]++] = node;
  }
  return lists;
}

/**
 * Groups nodes by category; a category without nodes keeps its place and colour.
 * @param {ArrayLike<number>} values
 * @param {string[]} categories
 * @param {string} none What nodes without a category are called.
 * @returns {Group[]}
 */
function groupByCategory(values, categories, none = "none") {
  const lists = nodesByIndex(values, categories.length);
  const groups = categories.map((label, kind) => ({
    label,
    colour: PALETTE[kind % PALETTE.length],
    symbol: SYMBOLS[Math.floor(kind / PALETTE.length) % SYMBOLS.length],
    nodes: lists[kind],
  }));
  const rest = { label: none, colour: NONE, symbol: "circle", nodes: lists[categories.length] };
  return rest.nodes.length ? [rest, ...groups] : groups;
}

/**
 * Groups nodes by number, in bins of equal width, or of equal ratio where a few numbers are far above the rest.
 * @param {ArrayLike<number>} values NaN for nodes without.
 * @param {string} none What nodes without a number are called.
 * @returns {Group[]}
 */
function groupByNumber(values, none = "no value") {
  const sorted = Float64Array.from(values).filter((value) => Number.isFinite(value)).sort();
  if (!sorted.length) return groupByCategory(new Int32Array(values.length).fill(-1), [], none);
  const [least, most, median] = [sorted[0], sorted[sorted.length - 1], sorted[sorted.length >> 1]];
  const skewed = least >= 0 && most > SKEWED * Math.max(median, 1e-30) && most > 0;
  const floor = skewed ? sorted.find((value) => value > 0) || most : least;
  const level = (/** @type {number} */ value) => (skewed ? Math.log(Math.max(value, floor)) : value);
  const [low, high] = [level(floor), level(most)];
  const bins = high > low ? Math.min(SCALE.length, new Set(sorted).size) : 1;
  const width = (high - low) / bins || 1;
  const bin = Array.from(values, (value) =>
    Number.isFinite(value) ? Math.min(bins - 1, Math.max(0, Math.floor((level(value) - low) / width))) : -1);
  const edge = (/** @type {number} */ number) => {
    const value = low + number * width;
    return brief(number === 0 ? least : number === bins ? most : skewed ? Math.exp(value) : value);
  };
  const lists = nodesByIndex(bin, bins);
  const groups = lists.slice(0, bins).map((nodes, number) => ({
    label: bins === 1 ? edge(0) : `${edge(number)} to ${edge(number + 1)}`,
    colour: SCALE[bins === 1 ? 5 : Math.round((number * (SCALE.length - 1)) / (bins - 1))],
    symbol: "circle",
    nodes,
  }));
  return lists[bins].length ? [{ label: none, colour: NONE, symbol: "circle", nodes: lists[bins] }, ...groups] : groups;
}

/** @param {string} colour As #rrggbb. @returns {number[]} Red, green and blue. */
function channels(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}

/** The diameter of a dot, in pixels. @param {number} nodes How many nodes there are. */
function dotSize(nodes) {
  return nodes < 500 ? 10 : nodes < 3000 ? 8 : nodes < 30000 ? 5 : 3;
}

/**
 * Makes nodes look like their groups, drawn in an order at random, so that no group lies on top.
 * @param {Group[]} groups
 * @param {Uint8Array} hidden
 * @param {Int32Array} order All nodes in an order at random.
 * @returns {Look}
 */
function lookOfGroups(groups, hidden, order) {
  const count = hidden.length;
  const colours = new Uint8Array(4 * count);
  const shapes = new Uint8Array(count);
  for (const group of groups) {
    const colour = [...channels(group.colour), 205];
    const shape = SYMBOLS.indexOf(group.symbol);
    for (const node of group.nodes) {
      colours.set(colour, 4 * node);
      shapes[node] = shape;
    }
  }
  const sizes = new Float32Array(count).fill(dotSize(count));
  return { colours, sizes, shapes, order: Uint32Array.from(order.filter((node) => !hidden[node])) };
}

/**
 * Finds the weights at both ends of the colours: the largest to another node, and the least, or a ten-thousandth of the
 * largest.
 * @param {Float32Array} weights
 * @param {number} node
 * @returns {[number, number]}
 */
function weightRange(weights, node) {
  let [low, high] = [Infinity, 0];
  for (let other = 0; other < weights.length; other++) {
    const weight = weights[other];
    if (other === node || weight <= 0) continue; // 0: in another graph, or too far for a number
    if (weight > high) high = weight;
    if (weight < low) low = weight;
  }
  return [Math.max(Math.min(low, high), WEAKEST * high), high];
}

/**
 * Returns the colour and the opacity, 0 to 1, of a weight; grey for the weakest, so that the others stand out.
 * @param {number} height Where it is on the scale, from 0 to 1.
 * @returns {{colour: string, opacity: number}}
 */
function attentionColour(height) {
  const step = Math.min(SCALE.length - 1, Math.floor(height * SCALE.length));
  return { colour: height > 0 ? SCALE[step] : NONE, opacity: 0.4 + 0.6 * height };
}

/**
 * Makes nodes look like the attention of one of them: colour and size by the logarithm of the weight, the strongest on top.
 * @param {Float32Array} weights
 * @param {number} node
 * @param {Uint8Array} hidden
 * @returns {Look}
 */
function lookOfWeights(weights, node, hidden) {
  const count = weights.length;
  const [low, high] = weightRange(weights, node);
  const decades = Math.log(high / low);
  const steps = 64;
  const table = Array.from({ length: steps }, (_, step) => {
    const { colour, opacity } = attentionColour(step / (steps - 1));
    return [...channels(colour), 255 * opacity];
  });
  const colours = new Uint8Array(4 * count);
  const sizes = new Float32Array(count);
  const level = new Uint8Array(count);
  const ends = new Uint32Array(steps + 1);
  const size = dotSize(count);
  for (let other = 0; other < count; other++) {
    const weight = weights[other];
    const height = weight <= low ? 0 : decades > 0 ? Math.min(1, Math.log(weight / low) / decades) : 1;
    level[other] = Math.min(steps - 1, Math.floor(height * steps));
    colours.set(table[level[other]], 4 * other);
    sizes[other] = size * (0.6 + height * height);
    if (!hidden[other]) ends[level[other] + 1] += 1;
  }
  for (let step = 0; step < steps; step++) ends[step + 1] += ends[step];
  const order = new Uint32Array(ends[steps]);
  for (let other = 0; other < count; other++) if (!hidden[other]) order[ends[level[other]]++] = other;
  return { colours, sizes, shapes: new Uint8Array(count), order };
}

/** Writes a number in few digits. @param {number} value */
function brief(value) {
  if (!Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

/** Writes a share as percent. @param {number} share */
function percent(share) {
  if (!Number.isFinite(share)) return "–";
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  return share >= 0.0995 || share === 0 ? `${Math.round(100 * share)} %` : `${Number((100 * share).toPrecision(2))} %`;
}

/** Writes a weight, which may be tiny, as percent. @param {number} weight */
function weightText(weight) {
  return weight >= 0.0995 ? percent(weight) : weight < 1e-9 ? "0 %" : `${Number((100 * weight).toPrecision(2))} %`;
}
