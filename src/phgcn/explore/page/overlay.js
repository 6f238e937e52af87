// @ts-check
"use strict";

/** Edges of the node in focus that are drawn. */
const DRAWN_EDGES = 300;

/** What lies over the picture: the node in focus, its edges, and the selection. */
class Overlay {
  /** @param {Plot} plot */
  constructor(plot) {
    this.plot = plot;
    this.canvas = document.createElement("canvas");
    this.canvas.className = "overlay";
    /** @type {HTMLElement} */ (plot.element.parentElement).append(this.canvas);
    /** @type {{node: number, neighbours: number[]} | null} */
    this.focus = null;
    /** @type {ArrayLike<number>} */
    this.selected = [];
  }

  /** Draws all, at the size and the ranges that the picture has now. */
  draw() {
    const { plot, canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = plot.element.getBoundingClientRect();
    canvas.width = Math.round(ratio * width);
    canvas.height = Math.round(ratio * height);
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.scale(ratio, ratio);
    const frame = plot.frame();
    pen.beginPath();
    pen.rect(frame.left, frame.top, frame.width, frame.height);
    pen.clip();
    const place = plot.placer();
    if (this.focus) this.drawFocus(pen, place, this.focus);
    this.drawSelection(pen, place);
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {(node: number) => number[]} place
   * @param {{node: number, neighbours: number[]}} focus
   */
  drawFocus(pen, place, { node, neighbours }) {
    const [x, y] = place(node);
    pen.strokeStyle = "#8888";
    pen.lineWidth = 1;
    for (const neighbour of neighbours.slice(0, DRAWN_EDGES)) {
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(...point(place(neighbour)));
      pen.stroke();
    }
    pen.strokeStyle = "#d00";
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(x, y, 9, 0, 2 * Math.PI);
    pen.moveTo(x - 14, y);
    pen.lineTo(x - 5, y);
    pen.moveTo(x + 5, y);
    pen.lineTo(x + 14, y);
    pen.stroke();
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {(node: number) => number[]} place
   */
  drawSelection(pen, place) {
    pen.strokeStyle = getComputedStyle(this.plot.element).color;
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (let i = 0; i < this.selected.length; i++) {
      if (this.plot.hidden[this.selected[i]]) continue;
      const [x, y] = place(this.selected[i]);
      pen.rect(x - 4, y - 4, 8, 8);
    }
    pen.stroke();
  }

  /**
   * Makes a picture of what is seen, with a caption and the legend below.
   * @param {string} caption
   * @param {{label: string, colour: string}[]} groups
   * @returns {Promise<Blob>}
   */
  async picture(caption, groups) {
    const { width, height } = this.plot.element.getBoundingClientRect();
    // @ts-ignore: the library is not typed here
    const url = await Plotly.toImage(this.plot.element, { format: "png", width, height, scale: 2 });
    const image = new Image();
    image.src = url;
    await image.decode();
    const rows = Math.ceil(groups.length / 4);
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * (height + 30 + 18 * rows);
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.fillStyle = getComputedStyle(document.body).backgroundColor;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    for (const layer of [this.plot.dots.canvas, image]) pen.drawImage(layer, 0, 0, 2 * width, 2 * height);
    pen.drawImage(this.canvas, 0, 0, 2 * width, 2 * height);
    pen.scale(2, 2);
    pen.font = "13px sans-serif";
    pen.fillStyle = getComputedStyle(document.body).color;
    pen.fillText(printable(caption, 140), 8, height + 18);
    groups.forEach((group, number) => {
      const [x, y] = [8 + ((number % 4) * width) / 4, height + 38 + 18 * Math.floor(number / 4)];
      pen.fillStyle = group.colour;
      pen.fillRect(x, y - 9, 10, 10);
      pen.fillStyle = getComputedStyle(document.body).color;
      pen.fillText(printable(group.label, 24), x + 14, y);
    });
    return new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture could not be made"))));
    });
  }
}

/** @param {number[]} pair @returns {[number, number]} */
function point([x, y]) {
  return [x, y];
}
