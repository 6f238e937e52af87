// @ts-check
"use strict";

/** Upper bounds of the pairs of nodes that a summary looks at: about a third of a second, and some seconds. */
const REACH_PAIRS = 2e7;
const ENTROPY_PAIRS = 4e8;

/** How far the columns of a reach table go, in edges. */
const FARTHEST = 3;

/** Milliseconds of work between two pauses, in which the page answers. */
const SLICE = 12;

/**
 * Where the attention of a node, or the mean of some nodes, falls: shares of 1.
 * @typedef {{own: number, itself: number, within: number[], classes: Float64Array, nodes: number}} Reach
 */

/**
 * Brings nodes into an order at random, the same every time.
 * @param {number} nodes
 * @returns {Int32Array}
 */
function shuffledNodes(nodes) {
  const order = Int32Array.from({ length: nodes }, (_, node) => node);
  let state = 1;
  for (let place = 0; place < nodes; place++) {
    state = (state * 48271) % 2147483647;
    const other = place + (state % (nodes - place));
    [order[place], order[other]] = [order[other], order[place]];
  }
  return order;
}

/**
 * Sums where the attention of one node falls.
 * @param {Float32Array} weights
 * @param {Int32Array} reached The nodes within some hops, of countHops.
 * @param {Int32Array} hops
 * @param {Int32Array | null} classes The class of each node, -1 for none.
 * @param {number} classCount
 * @param {number} node
 * @returns {Reach}
 */
function reachOf(weights, reached, hops, classes, classCount, node) {
  const within = new Array(FARTHEST).fill(0);
  for (const other of reached) {
    for (let hop = Math.max(hops[other], 1); hop <= FARTHEST; hop++) within[hop - 1] += weights[other];
  }
  const byClass = new Float64Array(classCount);
  for (let other = 0; classes && other < weights.length; other++) {
    if (classes[other] >= 0) byClass[classes[other]] += weights[other];
  }
  // Of the attention to nodes that have a class: where a node without one belongs, nobody knows.
  const labelled = byClass.reduce((sum, share) => sum + share, 0);
  const own = classes && classes[node] >= 0 && labelled > 0 ? byClass[classes[node]] / labelled : NaN;
  return { own, itself: weights[node], within, classes: byClass, nodes: 1 };
}

/**
 * Works through items with pauses, until done or outdated.
 * @param {ArrayLike<number>} items
 * @param {(item: number) => void} work
 * @param {() => boolean} outdated
 * @param {(done: number) => void} report Called before each pause, with how many items are done.
 * @returns {Promise<boolean>} Whether all were done.
 */
async function inSlices(items, work, outdated, report = () => {}) {
  let began = performance.now();
  for (let place = 0; place < items.length; place++) {
    work(items[place]);
    if (performance.now() - began > SLICE) {
      report(place + 1);
      await new Promise((resume) => setTimeout(resume));
      if (outdated()) return false;
      began = performance.now();
    }
  }
  return !outdated();
}

/**
 * Averages where the attention of nodes falls, for each class: of all nodes where that is quick, else of a sample.
 * @param {Points} points
 * @param {Graph} graph
 * @param {number} decay
 * @param {Int32Array} classes
 * @param {number} classCount
 * @param {() => boolean} outdated
 * @returns {Promise<{rows: Reach[], sampled: number} | null>} One row per class; null if outdated.
 */
async function reachByClass(points, graph, decay, classes, classCount, outdated) {
  const count = classes.length;
  const nodes = shuffledNodes(count).subarray(0, Math.max(1, Math.floor(REACH_PAIRS / count)));
  const weights = new Float32Array(count);
  const hops = new Int32Array(count);
  const rows = Array.from({ length: classCount }, () => ({
    own: 0, itself: 0, within: new Array(FARTHEST).fill(0), classes: new Float64Array(classCount), nodes: 0,
  }));
  const done = await inSlices(nodes, (node) => {
    if (classes[node] < 0) return;
    attend(points, graph.batch, node, decay, weights);
    const one = reachOf(weights, countHops(graph, node, hops, FARTHEST), hops, classes, classCount, node);
    const row = rows[classes[node]];
    row.nodes += 1;
    row.own += one.own;
    row.itself += one.itself;
    one.within.forEach((share, hop) => (row.within[hop] += share));
    one.classes.forEach((share, kind) => (row.classes[kind] += share));
  }, outdated);
  if (!done) return null;
  for (const row of rows) {
    row.own /= row.nodes;
    row.itself /= row.nodes;
    row.within = row.within.map((/** @type {number} */ share) => share / row.nodes);
    row.classes = row.classes.map((share) => share / row.nodes);
  }
  return { rows, sampled: nodes.length };
}

/**
 * Computes the entropy of attention of each node: of all where that takes some seconds, else of a sample; NaN for the others.
 * @param {Points} points
 * @param {Int32Array | null} batch
 * @param {number} decay
 * @param {() => boolean} outdated
 * @param {(share: number) => void} report
 * @returns {Promise<Float32Array | null>} In nats, (N,); null if outdated.
 */
async function entropies(points, batch, decay, outdated, report) {
  const count = points.values.length / points.dim;
  const nodes = shuffledNodes(count).subarray(0, Math.max(1, Math.floor(ENTROPY_PAIRS / count)));
  const weights = new Float32Array(count);
  const values = new Float32Array(count).fill(NaN);
  const work = (/** @type {number} */ node) => {
    values[node] = attend(points, batch, node, decay, weights);
  };
  const done = await inSlices(nodes, work, outdated, (finished) => report(finished / nodes.length));
  return done ? values : null;
}
