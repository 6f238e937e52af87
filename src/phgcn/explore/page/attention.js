// @ts-check
"use strict";

/** The graph: the neighbours of node i are sources[starts[i]] to sources[starts[i + 1] - 1].
 * @typedef {{starts: Int32Array, sources: Int32Array, batch: Int32Array | null}} Graph
 *
 * The points of one head: (N, dim).
 * @typedef {{values: Float32Array, dim: number}} Points
 */

/**
 * Computes the distance between two points.
 * @param {Points} points
 * @param {number} node
 * @param {number} other
 */
function distance(points, node, other) {
  const { values, dim } = points;
  let square = 0;
  for (let axis = 0; axis < dim; axis++) {
    const step = values[dim * node + axis] - values[dim * other + axis];
    square += step * step;
  }
  return Math.sqrt(square);
}

/**
 * Computes the exact attention of a node to all nodes of its graph: the softmax of -decay * distance.
 *
 * The largest score is that of the node itself, 0, so that nothing overflows.
 * @param {Points} points
 * @param {Int32Array | null} batch The graph of each node, or null for one graph.
 * @param {number} node
 * @param {number} decay
 * @param {Float32Array} weights Written to: (N,).
 * @returns {number} The entropy of the weights, in nats.
 */
function attend(points, batch, node, decay, weights) {
  const { values, dim } = points;
  const count = weights.length;
  const own = values.slice(dim * node, dim * (node + 1));
  let total = 0;
  let scored = 0;
  for (let other = 0, place = 0; other < count; other++) {
    let square = 0;
    for (let axis = 0; axis < dim; axis++) {
      const step = own[axis] - values[place++];
      square += step * step;
    }
    if (batch !== null && batch[other] !== batch[node]) {
      weights[other] = 0;
      continue;
    }
    const score = decay * Math.sqrt(square);
    const weight = Math.exp(-score);
    weights[other] = weight;
    total += weight;
    scored += weight * score;
  }
  for (let other = 0; other < count; other++) weights[other] /= total;
  return Math.log(total) + scored / total;
}

/**
 * Computes the attention of a node to its neighbours, and to itself if it has a self-loop.
 * @param {Points} points
 * @param {Graph} graph
 * @param {number} node
 * @param {number} decay
 * @param {boolean} selfLoop
 * @returns {Map<number, number>} The weight by node; that of an edge that occurs twice counts twice.
 */
function attendNeighbours(points, graph, node, decay, selfLoop) {
  const targets = selfLoop ? [node] : [];
  for (let place = graph.starts[node]; place < graph.starts[node + 1]; place++) {
    const source = graph.sources[place];
    if (!(selfLoop && source === node)) targets.push(source);
  }
  const scores = targets.map((target) => -decay * distance(points, node, target));
  const largest = scores.reduce((one, other) => Math.max(one, other), -Infinity);
  const total = scores.reduce((sum, score) => sum + Math.exp(score - largest), 0);
  const weights = new Map();
  targets.forEach((target, place) => {
    weights.set(target, (weights.get(target) || 0) + Math.exp(scores[place] - largest) / total);
  });
  return weights;
}

/** Attention to neighbours, by edge: what node i attends to is sources[starts[i]] to sources[starts[i + 1] - 1].
 * @typedef {{starts: Int32Array, sources: Int32Array, weights: Float32Array}} EdgeWeights
 */

/**
 * Reads the attention of a node to its neighbours.
 * @param {EdgeWeights} edges
 * @param {number} node
 * @returns {Map<number, number>} The weight by node.
 */
function readNeighbours({ starts, sources, weights }, node) {
  const read = new Map();
  for (let place = starts[node]; place < starts[node + 1]; place++) {
    read.set(sources[place], (read.get(sources[place]) || 0) + weights[place]);
  }
  return read;
}

/**
 * Finds the nodes with the largest weights, strongest first; equal ones by number. Nodes of weight 0 are left out.
 * @param {Float32Array} weights
 * @param {number} count
 * @returns {number[]}
 */
function strongest(weights, count) {
  /** @type {number[]} A heap of nodes, the weakest at its root. */
  const heap = [];
  const weaker = (/** @type {number} */ one, /** @type {number} */ other) =>
    weights[one] < weights[other] || (weights[one] === weights[other] && one > other);
  const sink = () => {
    for (let place = 0; ; ) {
      let least = place;
      for (const child of [2 * place + 1, 2 * place + 2]) {
        if (child < heap.length && weaker(heap[child], heap[least])) least = child;
      }
      if (least === place) return;
      [heap[place], heap[least]] = [heap[least], heap[place]];
      place = least;
    }
  };
  for (let node = 0; node < weights.length; node++) {
    if (weights[node] <= 0) continue;
    if (heap.length < count) {
      heap.push(node);
      for (let place = heap.length - 1; place > 0; ) {
        const parent = (place - 1) >> 1;
        if (!weaker(heap[place], heap[parent])) break;
        [heap[place], heap[parent]] = [heap[parent], heap[place]];
        place = parent;
      }
    } else if (weaker(heap[0], node)) {
      heap[0] = node;
      sink();
    }
  }
  return heap.sort((one, other) => (weaker(one, other) ? 1 : -1));
}

/**
 * Counts the edges from a node to all others, against the direction of edges: along these a layer brings what a node sees.
 * @param {Graph} graph
 * @param {number} node
 * @param {Int32Array} hops Written to: (N,), -1 where no path leads.
 * @param {number} farthest Nodes farther than this are taken for unreachable.
 * @returns {Int32Array} The nodes that are reached, nearest first.
 */
function countHops(graph, node, hops, farthest = Infinity) {
  const { starts, sources } = graph;
  const queue = new Int32Array(hops.length);
  hops.fill(-1);
  hops[node] = 0;
  queue[0] = node;
  let end = 1;
  for (let next = 0; next < end; next++) {
    const current = queue[next];
    if (hops[current] >= farthest) break;
    for (let place = starts[current]; place < starts[current + 1]; place++) {
      const source = sources[place];
      if (hops[source] < 0) {
        hops[source] = hops[current] + 1;
        queue[end++] = source;
      }
    }
  }
  return queue.subarray(0, end);
}

/**
 * Finds the principal axes of points by Jacobi's rotations of their covariance.
 * @param {Points} points
 * @returns {{axes: number[][], shares: number[], mean: number[]}} Axes by falling variance, and the share of each.
 */
function principalAxes({ values, dim }) {
  const count = values.length / dim;
  const mean = new Array(dim).fill(0);
  for (let i = 0; i < values.length; i++) mean[i % dim] += values[i] / count;
  const matrix = mean.map(() => new Array(dim).fill(0));
  for (let point = 0; point < count; point++) {
    for (let a = 0; a < dim; a++) {
      for (let b = 0; b <= a; b++) {
        matrix[a][b] += ((values[dim * point + a] - mean[a]) * (values[dim * point + b] - mean[b])) / count;
      }
    }
  }
  for (let a = 0; a < dim; a++) for (let b = 0; b < a; b++) matrix[b][a] = matrix[a][b];
  const vectors = mean.map((_, a) => mean.map((_, b) => Number(a === b)));
  for (let sweep = 0; sweep < 30; sweep++) {
    for (let a = 0; a < dim; a++) for (let b = 0; b < a; b++) rotate(matrix, vectors, a, b);
  }
  const variances = matrix.map((row, a) => Math.max(row[a], 0));
  const total = variances.reduce((sum, variance) => sum + variance, 0);
  const order = variances.map((_, a) => a).sort((one, other) => variances[other] - variances[one]);
  return {
    axes: order.map((a) => {
      const axis = vectors.map((row) => row[a]);
      const longest = axis.reduce((one, other) => (Math.abs(other) > Math.abs(one) ? other : one), 0);
      return axis.map((part) => (longest < 0 ? -part : part)); // of both directions the one that shows the same everywhere
    }),
    shares: order.map((a) => (total > 0 ? variances[a] / total : 0)),
    mean,
  };
}

/**
 * Makes an entry off the diagonal of a symmetric matrix 0, by a rotation that is applied to the vectors too.
 * @param {number[][]} matrix
 * @param {number[][]} vectors
 * @param {number} a
 * @param {number} b
 */
function rotate(matrix, vectors, a, b) {
  const entry = matrix[a][b];
  if (Math.abs(entry) <= 1e-15 * Math.sqrt(Math.abs(matrix[a][a] * matrix[b][b]))) return;
  const angle = 0.5 * Math.atan2(2 * entry, matrix[a][a] - matrix[b][b]);
  const cosine = Math.cos(angle);
  const sine = Math.sin(angle);
  for (const row of [...matrix, ...vectors]) {
    [row[a], row[b]] = [cosine * row[a] + sine * row[b], cosine * row[b] - sine * row[a]];
  }
  for (let c = 0; c < matrix.length; c++) {
    [matrix[a][c], matrix[b][c]] = [cosine * matrix[a][c] + sine * matrix[b][c], cosine * matrix[b][c] - sine * matrix[a][c]];
  }
}

/**
 * Projects points on an axis through their mean.
 * @param {Points} points
 * @param {number[]} axis
 * @param {number[]} origin
 * @returns {Float32Array}
 */
function project({ values, dim }, axis, origin) {
  const out = new Float32Array(values.length / dim);
  for (let point = 0; point < out.length; point++) {
    let sum = 0;
    for (let a = 0; a < dim; a++) sum += axis[a] * (values[dim * point + a] - origin[a]);
    out[point] = sum;
  }
  return out;
}
