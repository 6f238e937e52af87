// @ts-check
"use strict";

/** The name of the colour that is computed in the page. */
const ENTROPY = "entropy of attention";

/** Nodes of a CSV file of what a node attends to. */
const EXPORTED = 1000;

/** A column with its numbers.
 * @typedef {Column & {values: Float32Array | Int32Array}} Loaded
 *
 * What is shown of one node.
 * @typedef {{node: number, weights: Float32Array | null, entropy: number, targets: number[], hops: Int32Array,
 *   reach: Reach | null, neighbours: number[], local: Map<number, number> | null}} Focus
 */

/** The page: the graph, one or two models, and what is in focus and selected in both. */
class Explorer {
  /** @param {Header} header */
  constructor(header) {
    this.header = header;
    /** All nodes in an order at random, in which they are drawn. */ this.order = shuffledNodes(header.nodes);
    /** @type {string[]} */ this.ids = [];
    /** @type {Graph} */ this.graph = { starts: new Int32Array(), sources: new Int32Array(), batch: null };
    /** @type {Int32Array | null} The class of each node. */ this.classes = null;
    /** @type {string[]} */ this.classNames = [];
    /** @type {number | null} */ this.node = null;
    /** @type {{nodes: Int32Array, label: string} | null} */ this.selection = null;
    /** The factor of λ. */ this.sharpness = 1;
    /** @type {SideView[]} */ this.sides = [];
    /** Milliseconds, and how many answers there were, for measurements. @type {Object<string, number>} */ this.times = {};
  }

  async start() {
    const { header } = this;
    const read = async (/** @type {string} */ name) => /** @type {Int32Array} */ (await readArray(header, name));
    const named = header.columns.find((column) => column.name === "class" && column.categories);
    if (named) {
      this.classes = await read(named.array);
      this.classNames = named.categories || [];
    }
    [this.graph.starts, this.graph.sources] = [await read(header.starts), await read(header.sources)];
    if (header.batch) this.graph.batch = await read(header.batch);
    this.ids = await readIds(header);
    const place = /** @type {HTMLElement} */ (document.getElementById("sides"));
    place.classList.toggle("two", header.sides.length > 1);
    this.sides = header.sides.map((side) => new SideView(this, side, place));
    const sharp = header.sides.some((side) => side.views.some((view) => view.decayGlobal || view.decayLocal));
    /** @type {HTMLElement} */ (document.getElementById("sharpness-label")).hidden = !sharp;
    for (const side of this.sides) await side.start();
    say("");
    await nextFrame();
    this.times.picture = performance.now();
    await runLibrary();
    for (const side of this.sides) await side.frame();
    this.times.axes = performance.now();
    const plain = this.sides.some((side) => side.plot.dots instanceof PlainDots);
    if (plain) say("This browser has no WebGL: the nodes are drawn without it, as squares, and large graphs slowly.");
    for (const side of this.sides) {
      await showCurves(side);
      showConfusion(side);
      side.summarise();
    }
    document.documentElement.dataset.ready = "true";
  }

  /** Shows the attention of a node on all sides. @param {number | null} node @param {number} since */
  focusOn(node, since = performance.now()) {
    this.node = node;
    for (const side of this.sides) side.refocus(true);
    this.times.answer = performance.now() - since;
    this.times.answers = (this.times.answers || 0) + 1;
  }

  /** Selects nodes on all sides. @param {Int32Array | null} nodes @param {string} label */
  select(nodes, label = "") {
    this.selection = nodes ? { nodes, label } : null;
    for (const side of this.sides) side.reselect();
  }

  /** Changes how sharp attention is. @param {number} factor */
  sharpen(factor) {
    this.sharpness = factor;
    for (const side of this.sides) {
      side.refocus(false);
      side.summarise();
      if (side.colourName() === ENTROPY) side.recolour();
    }
  }

  /** The rows of a CSV file: the selection, else whom the node in focus attends to. */
  exported() {
    const { selection, sides, ids } = this;
    const focus = sides[0].focus;
    const attended = focus && focus.weights ? strongest(focus.weights, EXPORTED) : [];
    const nodes = selection ? Array.from(selection.nodes) : attended;
    const ofGraph = this.header.columns.length;
    const numbered = (/** @type {string} */ name, /** @type {number} */ side) =>
      sides.length > 1 ? `${name} ${side + 1}` : name;
    const columns = sides[0].columns.slice(0, ofGraph).map((column) => ({ column, name: column.name }));
    sides.forEach((side, number) => {
      for (const column of side.columns.slice(ofGraph)) columns.push({ column, name: numbered(column.name, number) });
    });
    const value = (/** @type {Loaded} */ { values, categories }, /** @type {number} */ node) =>
      categories ? categories[values[node]] || "" : Number.isNaN(values[node]) ? "" : values[node];
    const weights = sides.map((side) => (side.focus ? side.focus.weights : null));
    const weighted = weights.flatMap((array, side) => (array ? [{ array, name: numbered("weight", side) }] : []));
    const heading = ["id", ...columns.map(({ name }) => name), ...weighted.map(({ name }) => name)];
    const rows = nodes.map((node) => [
      ids[node], ...columns.map(({ column }) => value(column, node)), ...weighted.map(({ array }) => array[node])]);
    return [heading, ...rows];
  }

  /**
   * Finds nodes by id: the same first, then those that begin so, then those that hold it.
   * @param {string} text
   * @param {number} most
   */
  find(text, most) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return [];
    /** @type {number[][]} */
    const ranks = [[], [], []];
    for (let node = 0; node < this.ids.length; node++) {
      const place = this.ids[node].toLowerCase().indexOf(wanted);
      if (place < 0) continue;
      const rank = place > 0 ? 2 : this.ids[node].length === wanted.length ? 0 : 1;
      if (ranks[rank].length < most) ranks[rank].push(node);
    }
    return ranks.flat().slice(0, most);
  }
}

/** Waits until the browser has drawn. */
function nextFrame() {
  return new Promise((resume) => requestAnimationFrame(() => setTimeout(resume)));
}

/** Says something above the pictures. @param {string} text */
function say(text) {
  /** @type {HTMLElement} */ (document.getElementById("message")).textContent = text;
}

/** Connects what stands above the pictures. @param {Explorer} explorer */
function connectHeader(explorer) {
  const find = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
  const [search, matches, slider] = [find("search"), find("matches"), find("sharpness")];
  const go = (/** @type {number} */ node) => {
    matches.hidden = true;
    explorer.focusOn(node);
  };
  search.addEventListener("input", () => {
    const found = explorer.find(search.value, 12);
    const option = { type: "button", className: "name", role: "option" };
    matches.replaceChildren(...found.map((node) =>
      make("button", { ...option, textContent: printable(explorer.ids[node], 80), onclick: () => go(node) })));
    matches.hidden = !found.length;
  });
  search.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") matches.hidden = true;
    if (event.key !== "Enter") return;
    const [node] = explorer.find(search.value, 1);
    if (node === undefined) say(`No node has ${printable(search.value)} in its id.`);
    else go(node);
  });
  slider.addEventListener("input", () => {
    const factor = 2 ** Number(slider.value);
    find("sharpness-value").textContent = brief(factor);
    explorer.sharpen(factor);
  });
  find("clear").addEventListener("click", () => clear(explorer));
  find("save-csv").addEventListener("click", () => {
    const rows = explorer.exported();
    if (rows.length < 2) say("Nothing is selected: click a node or select some first.");
    else download(new Blob([toCSV(rows)], { type: "text/csv" }), "selection.csv");
  });
  find("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark", explorer));
  find("help").addEventListener("click", () => {
    find("keys").hidden = !find("keys").hidden;
    find("help").setAttribute("aria-expanded", String(!find("keys").hidden));
  });
  document.addEventListener("keydown", (event) => pressKey(event, explorer));
}

/** @param {Explorer} explorer */
function clear(explorer) {
  const find = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
  [find("search").value, find("matches").hidden] = ["", true];
  if (explorer.sharpness !== 1) {
    [find("sharpness").value, find("sharpness-value").textContent] = ["0", "1"];
    explorer.sharpen(1);
  }
  explorer.focusOn(null);
  explorer.select(null);
  say("");
}

/** @param {boolean} dark @param {Explorer | null} explorer */
function setTheme(dark, explorer) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = /** @type {HTMLElement} */ (document.getElementById("theme"));
  button.textContent = dark ? "Light" : "Dark";
  button.setAttribute("aria-pressed", String(dark));
  if (explorer) for (const side of explorer.sides) side.repaint();
}

/** Obeys keys that are not for a field. @param {KeyboardEvent} event @param {Explorer} explorer */
function pressKey(event, explorer) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input[type=search], select")) return;
  const side = explorer.sides.find((one) => one.root.contains(target)) || explorer.sides[0];
  const onPlot = target.matches(".plot");
  /** @type {Object<string, () => void>} */
  const keys = {
    "/": () => /** @type {HTMLElement} */ (document.getElementById("search")).focus(),
    Escape: () => clear(explorer),
    "[": () => side.step("head", -1),
    "]": () => side.step("head", 1),
    ",": () => side.step("view", -1),
    ".": () => side.step("view", 1),
    ...(onPlot ? side.plotKeys() : {}),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
}

/** Opens the page. */
async function openPage() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches, null);
  try {
    const header = /** @type {Header} */ (JSON.parse(await takeText("header")));
    const explorer = new Explorer(header);
    Object.assign(window, { explorer }); // for measurements, and the curious
    connectHeader(explorer);
    await explorer.start();
  } catch (error) {
    say(`The page could not be drawn: ${error}`);
    throw error;
  }
}

openPage();
