// @ts-check
"use strict";

/**
 * A property of the nodes: numbers, or indices of categories, -1 for none.
 * @typedef {{name: string, categories: string[] | null, array: string}} Column
 *
 * Attention that a page cannot compute, to neighbours or the strongest to all nodes: edges by target, and one array of
 * weights per head.
 * @typedef {{starts: string, sources: string, weights: string[]}} EdgeArrays
 *
 * The embedding of a layer: one array (N, dim) per head, and the decay of attention, per head, or null without.
 * @typedef {{name: string, dim: number, arrays: string[], decayGlobal: number[] | null, decayLocal: number[] | null,
 *   edges: EdgeArrays | null, far: EdgeArrays | null, selfLoops: boolean, note: string}} View
 *
 * @typedef {{title: string, summary: string, facts: [string, string][], bestEpoch: number | null, views: View[],
 *   columns: Column[], curves: Object<string, number[]>}} SideHeader
 *
 * @typedef {{title: string, nodes: number, edges: number, numbered: boolean, starts: string, sources: string,
 *   batch: string | null, columns: Column[],
 *   sides: SideHeader[], arrays: Object<string, string>}} Header
 */

/** @type {Map<string, Promise<any>>} */
const unpacked = new Map();

/**
 * Takes the packed text of a part out of the page and returns its bytes. A part can be taken once.
 * @param {string} name
 * @returns {Promise<Uint8Array>}
 */
async function takeBytes(name) {
  const element = document.getElementById(`data-${name}`);
  if (!element) throw new Error(`the page holds no part ${name}`);
  const letters = atob(element.textContent || "");
  element.remove();
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {string} name @returns {Promise<string>} */
async function takeText(name) {
  return new TextDecoder().decode(await takeBytes(name));
}

/**
 * Joins the bytes of numbers of four bytes, stored as all first bytes, then all second ones, and so on.
 * @param {Uint8Array} planes
 * @returns {ArrayBuffer}
 */
function joinBytes(planes) {
  const count = planes.length / 4;
  const words = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    words[i] = planes[i] | (planes[count + i] << 8) | (planes[2 * count + i] << 16) | (planes[3 * count + i] << 24);
  }
  return words.buffer;
}

/**
 * Returns an array of numbers; unpacked at the first call.
 * @param {Header} header
 * @param {string} name
 * @returns {Promise<Float32Array | Int32Array>}
 */
function readArray(header, name) {
  if (!unpacked.has(name)) {
    unpacked.set(name, takeBytes(name).then((planes) => {
      const joined = joinBytes(planes);
      return header.arrays[name] === "f4" ? new Float32Array(joined) : new Int32Array(joined);
    }));
  }
  return /** @type {Promise<any>} */ (unpacked.get(name));
}

/**
 * Returns the ids of all nodes.
 * @param {Header} header
 * @returns {Promise<string[]>}
 */
async function readIds(header) {
  if (!header.numbered) return JSON.parse(await takeText("ids"));
  return Array.from({ length: header.nodes }, (_, node) => String(node));
}

/** Runs the drawing library, which the policy of the page allows by its hash. */
async function runLibrary() {
  const script = document.createElement("script");
  script.textContent = await takeText("library");
  document.head.append(script);
}

/**
 * Makes text of strangers safe to show: on one line, with a ? for each letter that is obeyed instead of shown, and not longer
 * than a screen holds.
 * @param {string} text
 * @param {number} longest
 * @returns {string}
 */
function printable(text, longest = 60) {
  const letters = [...String(text).slice(0, 4 * longest)].map((letter) => (/[\p{C}\p{Zl}\p{Zp}]/u.test(letter) ? "?" : letter));
  return letters.length > longest ? letters.slice(0, longest - 1).join("") + "…" : letters.join("");
}
