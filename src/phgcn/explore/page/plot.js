// @ts-check
"use strict";

/** Pixels that a pointer may move between press and release of a click, and how far from a node a click may be. */
const STILL = 4;
const NEAR = 14;

/** Nodes that are drawn where the browser has no WebGL: so many at random. */
const WITHOUT_WEBGL = 5000;

/** Tells whether the browser can draw on a graphics card, or pretends to. */
function hasWebGL() {
  const context = document.createElement("canvas").getContext("webgl");
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return context !== null;
}

/** The picture of the nodes, drawn by the library: points, axes, pan and zoom. */
class Plot {
  /**
   * @param {HTMLElement} element
   * @param {boolean} webgl
   */
  constructor(element, webgl) {
    this.element = element;
    this.webgl = webgl;
    /** @type {Float32Array} */ this.x = new Float32Array(0);
    /** @type {Float32Array} */ this.y = new Float32Array(0);
    /** @type {Uint8Array} Whether a node is hidden by the legend. */ this.hidden = new Uint8Array(0);
    this.home = [[0, 1], [0, 1]];
    this.drawn = false;
  }

  /**
   * Draws nodes, each group in its colour.
   * @param {Float32Array} x
   * @param {Float32Array} y
   * @param {Group[]} groups
   * @param {Set<string>} off The labels of groups that are not shown.
   * @param {{across: string, up: string, equal: boolean}} axes
   */
  async draw(x, y, groups, off, axes) {
    const moved = x !== this.x || y !== this.y;
    [this.x, this.y] = [x, y];
    this.hidden = new Uint8Array(x.length);
    for (const group of groups) if (off.has(group.label)) for (const node of group.nodes) this.hidden[node] = 1;
    if (moved) this.home = [padded(x), padded(y)];
    const [across, up] = moved || !this.drawn ? this.home : this.ranges();
    const shown = this.webgl || x.length <= WITHOUT_WEBGL ? null : new Set(sampleNodes(x.length, WITHOUT_WEBGL));
    const size = x.length < 3000 ? 7 : x.length < 30000 ? 5 : 3;
    const traces = groups.filter((group) => !off.has(group.label)).map((group) => {
      const nodes = shown ? group.nodes.filter((node) => shown.has(node)) : group.nodes;
      return {
        type: this.webgl ? "scattergl" : "scatter",
        mode: "markers",
        x: Float32Array.from(nodes, (node) => x[node]),
        y: Float32Array.from(nodes, (node) => y[node]),
        marker: { size, color: group.colour, symbol: group.symbol, opacity: 0.8 },
        hoverinfo: "skip",
      };
    });
    const axis = { zeroline: false, gridcolor: "#8884", linecolor: "#888", tickcolor: "#888", showline: true };
    const layout = {
      margin: { l: 48, r: 8, t: 8, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: "#808080" },
      showlegend: false,
      hovermode: false,
      dragmode: this.drawn ? this.full().dragmode : "pan",
      selections: [],
      xaxis: { ...axis, title: { text: axes.across }, range: across },
      yaxis: { ...axis, title: { text: axes.up }, range: up, ...(axes.equal ? { scaleanchor: "x" } : {}) },
    };
    const buttons = [["pan2d", "zoom2d", "select2d", "lasso2d"], ["zoomIn2d", "zoomOut2d"]];
    const config = { scrollZoom: true, displaylogo: false, responsive: true, modeBarButtons: buttons, doubleClick: false };
    // @ts-ignore: the library is not typed here
    await Plotly.react(this.element, traces, layout, config);
    this.drawn = true;
  }

  /** The layout as the library has completed it. */
  full() {
    // @ts-ignore
    return this.element._fullLayout;
  }

  /** The numbers at the ends of both axes. @returns {number[][]} */
  ranges() {
    return [this.full().xaxis.range.map(Number), this.full().yaxis.range.map(Number)];
  }

  /** The rectangle of the axes within the element, in pixels. */
  frame() {
    const { xaxis, yaxis } = this.full();
    return { left: xaxis._offset, top: yaxis._offset, width: xaxis._length, height: yaxis._length };
  }

  /** Returns a function from a node to its place in pixels, as the picture is now. */
  placer() {
    const { left, top, width, height } = this.frame();
    const [[x0, x1], [y0, y1]] = this.ranges();
    return (/** @type {number} */ node) => [
      left + ((this.x[node] - x0) / (x1 - x0)) * width,
      top + height - ((this.y[node] - y0) / (y1 - y0)) * height,
    ];
  }

  /**
   * Finds the node nearest to a place in pixels, if it is near.
   * @param {number} px
   * @param {number} py
   * @param {number} near
   * @returns {number | null}
   */
  nearest(px, py, near = NEAR) {
    const { left, top, width, height } = this.frame();
    const [[x0, x1], [y0, y1]] = this.ranges();
    const [across, up] = [width / (x1 - x0), height / (y1 - y0)];
    const [x, y] = [x0 + (px - left) / across, y0 + (top + height - py) / up];
    let best = near * near;
    let found = null;
    for (let node = 0; node < this.x.length; node++) {
      const dx = (this.x[node] - x) * across;
      const dy = (this.y[node] - y) * up;
      const square = dx * dx + dy * dy;
      if (square < best && !this.hidden[node]) [best, found] = [square, node];
    }
    return found;
  }

  /**
   * Moves by shares of the picture and zooms by a factor about its middle.
   * @param {number} across
   * @param {number} up
   * @param {number} factor
   */
  move(across, up, factor = 1) {
    const change = (/** @type {number[]} */ [low, high], /** @type {number} */ share) => {
      const [middle, half] = [(low + high) / 2 + share * (high - low), ((high - low) / 2) * factor];
      return [middle - half, middle + half];
    };
    const [x, y] = this.ranges();
    this.show(change(x, across), change(y, up));
  }

  /** Shows all nodes. */
  reset() {
    this.show(this.home[0], this.home[1]);
  }

  /** Moves so that a node is within the picture. @param {number} node */
  reveal(node) {
    const inside = (/** @type {number} */ value, /** @type {number[]} */ [low, high]) => value >= low && value <= high;
    const [x, y] = this.ranges();
    if (inside(this.x[node], x) && inside(this.y[node], y)) return;
    const centred = (/** @type {number} */ value, /** @type {number[]} */ [low, high]) => [
      value - (high - low) / 2, value + (high - low) / 2];
    this.show(centred(this.x[node], x), centred(this.y[node], y));
  }

  /** @param {number[]} x @param {number[]} y */
  show(x, y) {
    // @ts-ignore
    Plotly.relayout(this.element, { "xaxis.range": x, "yaxis.range": y });
  }

  /**
   * Finds the nodes inside a selection that was drawn with the library's tools.
   * @param {any} event
   * @returns {Int32Array}
   */
  inside(event) {
    const within = event.lassoPoints ? insidePolygon(event.lassoPoints.x, event.lassoPoints.y) : insideBox(event.range);
    const nodes = [];
    for (let node = 0; node < this.x.length; node++) {
      if (!this.hidden[node] && within(this.x[node], this.y[node])) nodes.push(node);
    }
    return Int32Array.from(nodes);
  }
}

/** The range of numbers with some room at both ends. @param {Float32Array} values */
function padded(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const room = high > low ? 0.04 * (high - low) : 1;
  return [low - room, high + room];
}

/** @param {{x: number[], y: number[]}} range */
function insideBox({ x, y }) {
  const [left, right, low, high] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
  return (/** @type {number} */ px, /** @type {number} */ py) => px >= left && px <= right && py >= low && py <= high;
}

/** @param {number[]} xs @param {number[]} ys */
function insidePolygon(xs, ys) {
  return (/** @type {number} */ px, /** @type {number} */ py) => {
    let inside = false;
    for (let one = 0, other = xs.length - 1; one < xs.length; other = one++) {
      if (ys[one] > py !== ys[other] > py && px < ((xs[other] - xs[one]) * (py - ys[one])) / (ys[other] - ys[one]) + xs[one]) {
        inside = !inside;
      }
    }
    return inside;
  };
}
