// @ts-check
"use strict";

/**
 * How nodes look: a colour (red, green, blue, opacity) and a diameter in pixels for each, and the order in which they are
 * drawn. Nodes that are not in the order are hidden.
 * @typedef {{colours: Uint8Array, sizes: Float32Array, shapes: Uint8Array, order: Uint32Array}} Look
 *
 * The rectangle of the axes within the picture, in pixels.
 * @typedef {{left: number, top: number, width: number, height: number}} Frame
 */

const VERTEX = `
attribute vec2 place;
attribute vec4 colour;
attribute float size;
attribute float shape;
uniform vec2 low, scale;
uniform float ratio;
varying vec4 shade;
varying float kind;
void main() {
  gl_Position = vec4((place - low) * scale - 1.0, 0.0, 1.0);
  gl_PointSize = size * ratio;
  shade = colour;
  kind = shape;
}`;

// The shapes of SYMBOLS, in their order, within the square from -1 to 1.
const FRAGMENT = `
precision mediump float;
varying vec4 shade;
varying float kind;
bool inside(vec2 p) {
  vec2 a = abs(p);
  if (kind < 0.5) return dot(p, p) <= 1.0;
  if (kind < 1.5) return max(a.x, a.y) <= 0.85;
  if (kind < 2.5) return p.y <= 0.8 && a.x <= 0.55 * (p.y + 1.0);
  if (kind < 3.5) return min(a.x, a.y) <= 0.32;
  if (kind < 4.5) return a.x + a.y <= 1.0;
  if (kind < 5.5) return min(abs(p.x - p.y), abs(p.x + p.y)) <= 0.45;
  if (kind < 6.5) return p.y >= -0.8 && a.x <= 0.55 * (1.0 - p.y);
  return dot(p, p) <= 1.0 && dot(p, p) >= 0.25;
}
void main() {
  if (!inside(2.0 * gl_PointCoord - 1.0)) discard;
  gl_FragColor = vec4(shade.rgb * shade.a, shade.a);
}`;

/**
 * The dots of all nodes, drawn with WebGL. The libraries of the field compile text to code for this, which the policy of the
 * page forbids; four arrays and one small program do without.
 */
class Dots {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.count = 0;
    const gl = canvas.getContext("webgl", { antialias: false, preserveDrawingBuffer: true });
    if (!gl || !gl.getExtension("OES_element_index_uint")) throw new Error("no WebGL");
    this.gl = gl;
    const program = /** @type {WebGLProgram} */ (gl.createProgram());
    for (const kind of [gl.VERTEX_SHADER, gl.FRAGMENT_SHADER]) {
      const shader = /** @type {WebGLShader} */ (gl.createShader(kind));
      gl.shaderSource(shader, kind === gl.VERTEX_SHADER ? VERTEX : FRAGMENT);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(`no WebGL program: ${gl.getProgramInfoLog(program)}`);
    gl.useProgram(program);
    this.program = program;
    /** @type {Object<string, WebGLBuffer | null>} */
    this.buffers = Object.fromEntries(["place", "colour", "size", "shape", "order"].map((name) => [name, gl.createBuffer()]));
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  /** @param {Float32Array} x @param {Float32Array} y */
  setPlaces(x, y) {
    const places = new Float32Array(2 * x.length);
    for (let node = 0; node < x.length; node++) [places[2 * node], places[2 * node + 1]] = [x[node], y[node]];
    this.fill("place", places, 2, this.gl.FLOAT);
  }

  /** @param {Look} look */
  setLook({ colours, sizes, shapes, order }) {
    const { gl } = this;
    this.fill("colour", colours, 4, gl.UNSIGNED_BYTE);
    this.fill("size", sizes, 1, gl.FLOAT);
    this.fill("shape", shapes, 1, gl.UNSIGNED_BYTE);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, this.buffers.order);
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, order, gl.DYNAMIC_DRAW);
    this.count = order.length;
  }

  /** @param {string} name @param {ArrayBufferView<ArrayBuffer>} values @param {number} width @param {number} type */
  fill(name, values, width, type) {
    const { gl } = this;
    const place = gl.getAttribLocation(this.program, name);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, width, type, name === "colour", 0, 0); // a colour from 0 to 255 is one from 0 to 1
  }

  /**
   * Draws the last nodes of the order.
   * @param {Frame} frame
   * @param {number[][]} ranges
   * @param {number} ratio Pixels of the screen per pixel of the page.
   * @param {number} most How many nodes are drawn at most.
   */
  draw(frame, [[x0, x1], [y0, y1]], ratio, most) {
    const { gl, canvas, program } = this;
    const drawn = Math.min(this.count, most);
    const left = Math.round(frame.left * ratio);
    const bottom = Math.round(canvas.height - (frame.top + frame.height) * ratio);
    const [width, height] = [Math.round(frame.width * ratio), Math.round(frame.height * ratio)];
    gl.disable(gl.SCISSOR_TEST);
    gl.viewport(left, bottom, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(left, bottom, width, height);
    gl.uniform2f(gl.getUniformLocation(program, "low"), x0, y0);
    gl.uniform2f(gl.getUniformLocation(program, "scale"), 2 / (x1 - x0), 2 / (y1 - y0));
    gl.uniform1f(gl.getUniformLocation(program, "ratio"), ratio);
    gl.drawElements(gl.POINTS, drawn, gl.UNSIGNED_INT, 4 * (this.count - drawn)); // an index has four bytes
  }
}

/** The same without WebGL: slower, and squares instead of shapes. */
class PlainDots {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.x = this.y = new Float32Array(0);
    /** @type {Look} */
    this.look = { colours: new Uint8Array(0), sizes: this.x, shapes: new Uint8Array(0), order: new Uint32Array(0) };
  }

  /** @param {Float32Array} x @param {Float32Array} y */
  setPlaces(x, y) {
    [this.x, this.y] = [x, y];
  }

  /** @param {Look} look */
  setLook(look) {
    this.look = look;
  }

  /** @param {Frame} frame @param {number[][]} ranges @param {number} ratio @param {number} most */
  draw(frame, [[x0, x1], [y0, y1]], ratio, most) {
    const { pen, canvas } = this;
    const { colours, sizes, order } = this.look;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.save();
    pen.beginPath();
    pen.rect(frame.left, frame.top, frame.width, frame.height);
    pen.clip();
    for (const node of order.subarray(Math.max(0, order.length - most))) {
      const [red, green, blue, opacity] = colours.subarray(4 * node, 4 * node + 4);
      const [x, y] = [(this.x[node] - x0) / (x1 - x0), (this.y[node] - y0) / (y1 - y0)];
      if (x < 0 || x > 1 || y < 0 || y > 1) continue;
      pen.fillStyle = `rgba(${red},${green},${blue},${opacity / 255})`;
      const size = sizes[node];
      pen.fillRect(frame.left + x * frame.width - size / 2, frame.top + (1 - y) * frame.height - size / 2, size, size);
    }
    pen.restore();
  }
}

/**
 * Makes what draws dots: with WebGL where the browser has it.
 * @param {HTMLCanvasElement} canvas
 * @returns {Dots | PlainDots}
 */
function makeDots(canvas) {
  try {
    return new Dots(canvas);
  } catch (error) {
    return new PlainDots(canvas);
  }
}
