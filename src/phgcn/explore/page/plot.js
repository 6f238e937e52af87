// @ts-check
"use strict";

/** Pixels that a pointer may move between press and release of a click, and how far from a node a click may be. */
const STILL = 4;
const NEAR = 14;

/** Nodes that are drawn while the picture is dragged; all of them follow when it comes to rest. */
const MOVING = 50000;

/** The room around the axes, in pixels. */
const MARGIN = { l: 62, r: 8, t: 8, b: 40 };

/** The picture of the nodes: dots of our own, and axes, pan, zoom and tools of the library, once it is there. */
class Plot {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    const canvas = document.createElement("canvas");
    canvas.className = "dots";
    element.before(canvas);
    this.dots = makeDots(canvas);
    /** @type {Float32Array} */ this.x = new Float32Array(0);
    /** @type {Float32Array} */ this.y = new Float32Array(0);
    /** @type {Uint8Array} Whether a node is hidden by the legend. */ this.hidden = new Uint8Array(0);
    this.titles = ["", ""];
    this.equal = true;
    /** The numbers at the ends of the axes, before the library is there. */ this.first = [[0, 1], [0, 1]];
    /** Whether the library draws axes. */ this.framed = false;
  }

  /**
   * Places all nodes anew and shows all of them.
   * @param {Float32Array} x
   * @param {Float32Array} y
   * @param {string[]} titles Those of the axes.
   * @param {boolean} equal Whether both axes have the same unit.
   */
  async setPlaces(x, y, titles, equal) {
    [this.x, this.y, this.titles, this.equal] = [x, y, titles, equal];
    if (this.hidden.length !== x.length) this.hidden = new Uint8Array(x.length);
    this.dots.setPlaces(x, y);
    this.first = this.home();
    if (this.framed) await this.drawAxes();
  }

  /** Draws the axes with the library. */
  async drawAxes() {
    const [across, up] = this.first;
    const axis = { zeroline: false, gridcolor: "#8883", linecolor: "#888", tickcolor: "#888", showline: true };
    const layout = {
      margin: MARGIN, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: "#808080" },
      showlegend: false, hovermode: false, dragmode: this.framed ? this.full().dragmode : "pan", selections: [],
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "#808080", activecolor: "#d55e00" },
      xaxis: { ...axis, title: { text: this.titles[0] }, range: across },
      yaxis: { ...axis, title: { text: this.titles[1] }, range: up },
    };
    // The tools of the library appear where it has something to select.
    const nothing = { type: "scatter", mode: "markers", x: [across[0]], y: [up[0]], marker: { opacity: 0 }, hoverinfo: "skip" };
    const buttons = [["pan2d", "select2d", "lasso2d"], ["zoomIn2d", "zoomOut2d"]];
    const config = { scrollZoom: true, displaylogo: false, responsive: true, modeBarButtons: buttons, doubleClick: false };
    // @ts-ignore: the library is not typed here
    await Plotly.react(this.element, [nothing], layout, config);
    this.framed = true;
  }

  /** Draws the dots as the axes are now. @param {number} most How many nodes are drawn at most. */
  drawDots(most) {
    const { canvas } = this.dots;
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = this.element.getBoundingClientRect();
    const size = [Math.round(ratio * width), Math.round(ratio * height)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    this.dots.draw(this.frame(), this.ranges(), ratio, most);
  }

  /** The layout as the library has completed it. */
  full() {
    // @ts-ignore
    return this.element._fullLayout;
  }

  /** The numbers at the ends of both axes. @returns {number[][]} */
  ranges() {
    return this.framed ? [this.full().xaxis.range.map(Number), this.full().yaxis.range.map(Number)] : this.first;
  }

  /** The ranges that show all nodes. */
  home() {
    const [x, y] = [padded(this.x), padded(this.y)];
    if (!this.equal) return [x, y];
    const { width, height } = this.frame();
    const unit = Math.max((x[1] - x[0]) / width, (y[1] - y[0]) / height);
    return [centred((x[0] + x[1]) / 2, unit * width), centred((y[0] + y[1]) / 2, unit * height)];
  }

  /** The rectangle of the axes. @returns {Frame} */
  frame() {
    if (!this.framed) {
      const { width, height } = this.element.getBoundingClientRect();
      const [across, up] = [width - MARGIN.l - MARGIN.r, height - MARGIN.t - MARGIN.b];
      return { left: MARGIN.l, top: MARGIN.t, width: Math.max(1, across), height: Math.max(1, up) };
    }
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
    const change = (/** @type {number[]} */ [low, high], /** @type {number} */ share) =>
      centred((low + high) / 2 + share * (high - low), (high - low) * factor);
    const [x, y] = this.ranges();
    return this.show(change(x, across), change(y, up));
  }

  /** Shows all nodes. */
  reset() {
    const [x, y] = this.home();
    return this.show(x, y);
  }

  /** Moves so that a node is within the picture. @param {number} node */
  reveal(node) {
    const [x, y] = this.ranges();
    const inside = this.x[node] >= x[0] && this.x[node] <= x[1] && this.y[node] >= y[0] && this.y[node] <= y[1];
    if (!inside) this.show(centred(this.x[node], x[1] - x[0]), centred(this.y[node], y[1] - y[0]));
  }

  /** @param {number[]} x @param {number[]} y */
  async show(x, y) {
    this.first = [x, y];
    // @ts-ignore: the library is not typed here
    if (this.framed) await Plotly.relayout(this.element, { "xaxis.range": x, "yaxis.range": y });
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

/** @param {number} middle @param {number} width */
function centred(middle, width) {
  return [middle - width / 2, middle + width / 2];
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
