// @ts-check
"use strict";

/** The columns that are named first among the colours. */
const FIRST_COLUMNS = ["class", "label", "prediction", "correctness", "confidence", "error", "split", "degree"];

/** One model on the graph: its picture, its controls and its panels. */
class SideView {
  /**
   * @param {Explorer} explorer
   * @param {SideHeader} header
   * @param {HTMLElement} place
   */
  constructor(explorer, header, place) {
    const template = /** @type {HTMLTemplateElement} */ (document.getElementById("side"));
    this.explorer = explorer;
    this.header = header;
    const copy = /** @type {DocumentFragment} */ (template.content.cloneNode(true));
    this.root = /** @type {HTMLElement} */ (copy.firstElementChild);
    place.append(this.root);
    this.find("h2").textContent = printable(header.title, 120);
    this.find(".summary").textContent = printable(header.summary, 600);
    this.stage = this.find(".stage");
    this.plot = new Plot(this.find(".plot"));
    this.overlay = new Overlay(this.plot);
    /** @type {Loaded[]} */ this.columns = [];
    /** @type {Group[]} */ this.groups = [];
    /** @type {Set<string>} Labels that the legend hides. */ this.off = new Set();
    /** @type {Points} */ this.points = { values: new Float32Array(), dim: 1 };
    /** @type {EdgeWeights | null} Attention to neighbours, where it is stored. */ this.edges = null;
    /** @type {EdgeWeights | null} The strongest attention to all nodes, where it is stored. */ this.far = null;
    /** @type {Focus | null} */ this.focus = null;
    /** Counts what makes computations outdated. */ this.version = 0;
    this.coloured = 0;
    /** What nodes are coloured by while none is in focus. */ this.colour = "";
  }

  /** @param {string} selector @returns {any} */
  find(selector) {
    return this.root.querySelector(selector);
  }

  /** The body of a panel. @param {string} name @returns {HTMLElement} */
  panel(name) {
    return this.find(`.panels .${name} .body`);
  }

  async start() {
    const { header, explorer } = this;
    const all = [...explorer.header.columns, ...header.columns];
    const load = async (/** @type {Column} */ column) =>
      ({ ...column, values: await readArray(explorer.header, column.array) });
    this.columns = await Promise.all(all.map(load));
    setOptions(this.find(".view"), header.views.map((view) => view.name));
    const split = this.column("split");
    const sets = split && split.categories ? split.categories : [];
    setOptions(this.find(".set"), ["all", ...sets]);
    if (split && split.values.includes(sets.indexOf("test"))) this.find(".set").value = "test";
    this.find(".set").addEventListener("change", () => showConfusion(this));
    setOptions(this.find(".only"), ["all nodes", ...sets.map((name) => `${name} nodes`)]);
    this.find(".only").addEventListener("change", () => this.hide());
    this.find(".view").addEventListener("change", () => this.changeView());
    this.find(".head").addEventListener("change", () => this.changeHead());
    for (const axis of [".across", ".up"]) this.find(axis).addEventListener("change", () => this.reproject());
    this.find(".colour").addEventListener("change", () => {
      this.colour = this.find(".colour").value;
      this.off.clear();
      if (this.focus) explorer.focusOn(null);
      this.recolour();
    });
    this.find(".save-png").addEventListener("click", () => this.savePicture());
    await this.changeView();
    showSelection(this);
    connectPointer(this);
    new ResizeObserver(() => this.repaint()).observe(this.plot.element);
  }

  /** Adds axes and tools, when the library is there. */
  async frame() {
    await this.plot.drawAxes();
    connectLibrary(this);
    this.repaint();
  }

  view() {
    return this.header.views[this.find(".view").selectedIndex];
  }

  /** The number of the head that is shown. @returns {number} */
  head() {
    return this.find(".head").selectedIndex;
  }

  /** The decay of attention to all nodes, times the factor of the slider; null without such attention. */
  decay() {
    const decays = this.view().decayGlobal;
    return decays ? decays[this.head()] * this.explorer.sharpness : null;
  }

  /** @param {string} name @returns {Loaded | undefined} */
  column(name) {
    return this.columns.find((column) => column.name === name && column.categories);
  }

  /** @returns {string} */
  colourName() {
    return this.colourNames().includes(this.colour) ? this.colour : this.colourNames()[0];
  }

  /** Offers what nodes can be coloured by; while one is in focus, its attention is what they are coloured by. */
  offerColours() {
    const names = this.colourNames();
    const select = this.find(".colour");
    setOptions(select, names, names.indexOf(this.colourName()));
    if (!this.focus || !this.focus.weights) return;
    select.prepend(make("option", { textContent: "attention of the node", disabled: true }));
    select.selectedIndex = 0;
  }

  /** What nodes can be coloured by: what the model says first, the columns of the nodes' table last. */
  colourNames() {
    const names = this.columns.map((column) => column.name);
    const first = FIRST_COLUMNS.filter((name) => names.includes(name));
    const computed = this.view().decayGlobal ? [ENTROPY] : [];
    return [...first, ...computed, ...names.filter((name) => !first.includes(name))];
  }

  async changeView() {
    const view = this.view();
    setOptions(this.find(".head"), view.arrays.map((_, head) => String(head)));
    this.offerColours();
    const names = axisNames(view.dim);
    const [across, up] = view.dim > 2 ? [view.dim, view.dim + 1] : [0, 1];
    setOptions(this.find(".across"), names, across);
    setOptions(this.find(".up"), names, Math.min(up, names.length - 1));
    await this.changeHead();
  }

  async changeHead() {
    const { explorer } = this;
    const view = this.view();
    const name = view.arrays[this.head()];
    const values = /** @type {Float32Array} */ (await readArray(explorer.header, name));
    const [edges, far] = await Promise.all([this.readEdges(view.edges), this.readEdges(view.far)]);
    if (this.view() !== view || view.arrays[this.head()] !== name) return; // another one was chosen meanwhile
    this.points = { values, dim: view.dim };
    this.edges = edges;
    this.far = far;
    this.find(".about").textContent = printable(view.note, 300);
    await this.reproject();
    this.refocus(false);
    this.summarise();
    this.root.dataset.shown = `${view.name}, head ${this.head()}`; // for those who wait for it
  }

  /**
   * Unpacks the attention of a head, where it is stored.
   * @param {EdgeArrays | null} edges
   * @returns {Promise<EdgeWeights | null>}
   */
  async readEdges(edges) {
    if (!edges) return null;
    const names = [edges.starts, edges.sources, edges.weights[this.head()]];
    /** @type {any[]} */
    const [starts, sources, weights] = await Promise.all(names.map((name) => readArray(this.explorer.header, name)));
    return { starts, sources, weights };
  }

  /** The attention of a node to its neighbours; null where the layer has none. @param {number} node */
  neighbourWeights(node) {
    const { decayLocal, selfLoops } = this.view();
    if (this.edges) return readNeighbours(this.edges, node);
    if (!decayLocal) return null;
    const decay = decayLocal[this.head()] * this.explorer.sharpness;
    return attendNeighbours(this.points, this.explorer.graph, node, decay, selfLoops);
  }

  /** Changes the axes that are drawn. */
  async reproject() {
    const { dim } = this.points;
    const axes = principalAxes(this.points);
    /** @type {string[]} */
    const titles = [];
    const [x, y] = [".across", ".up"].map((selector) => {
      const index = this.find(selector).selectedIndex;
      if (dim === 1 && index === 1) {
        titles.push("at random");
        return spreadOut(this.points.values.length);
      }
      const axis = index < dim ? axes.mean.map((_, a) => Number(a === index)) : axes.axes[index - dim];
      const name = axisNames(dim)[index];
      titles.push(index < dim ? name : `${name} (${percent(axes.shares[index - dim])} of the variance)`);
      return project(this.points, axis, index < dim ? axes.mean.map(() => 0) : axes.mean);
    });
    await this.plot.setPlaces(x, y, titles, dim > 1);
    await this.recolour();
  }

  /** Groups nodes by the chosen colour and draws them. */
  async recolour() {
    const version = ++this.coloured;
    const name = this.colourName();
    if (name === ENTROPY) {
      const outdated = () => version !== this.coloured;
      const report = (/** @type {number} */ share) => say(`Computing the entropy of attention: ${percent(share)}`);
      const values = await entropies(this.points, this.explorer.graph.batch, this.decay() || 0, outdated, report);
      if (!values) return;
      say("");
      this.groups = groupByNumber(values);
    } else {
      const column = /** @type {Loaded} */ (this.columns.find((one) => one.name === name));
      this.groups = column.categories
        ? groupByCategory(column.values, column.categories, noneOf(name))
        : groupByNumber(column.values, noneOf(name, "no value"));
    }
    showLegend(this);
    this.hide();
  }

  /** Hides the nodes of groups that the legend has switched off. */
  hide() {
    const hidden = new Uint8Array(this.explorer.header.nodes);
    for (const group of this.groups) if (this.off.has(group.label)) for (const node of group.nodes) hidden[node] = 1;
    const role = this.find(".only").selectedIndex - 1;
    const split = this.column("split");
    if (role >= 0 && split) split.values.forEach((value, node) => { if (value !== role) hidden[node] = 1; });
    this.plot.hidden = hidden;
    this.redraw();
  }

  /** Draws the dots by attention to them if a node is in focus, else by group. */
  redraw() {
    const { plot, focus, explorer } = this;
    const byWeight = focus && focus.weights;
    plot.dots.setLook(byWeight
      ? lookOfWeights(focus.weights, focus.node, plot.hidden) : lookOfGroups(this.groups, plot.hidden, explorer.order));
    this.repaint();
  }

  /** Draws the same dots and marks as the axes are now. @param {number} most How many dots at most. */
  repaint(most = Infinity) {
    this.plot.drawDots(most);
    this.overlay.draw();
  }

  /** Shows or hides a group. @param {string} label @param {boolean} on */
  toggle(label, on) {
    if (on) this.off.delete(label);
    else this.off.add(label);
    this.hide();
  }

  /** @param {boolean} on */
  toggleAll(on) {
    this.off = new Set(on ? [] : this.groups.map((group) => group.label));
    showLegend(this);
    this.hide();
  }

  /** Computes and shows the attention of the node in focus. @param {boolean} reveal Whether to move the picture to the node. */
  refocus(reveal) {
    const { node } = this.explorer;
    this.focus = node === null ? null : this.look(node);
    this.overlay.focus = this.focus;
    if (node !== null && reveal) this.plot.reveal(node);
    this.redraw();
    showNode(this);
    showLegend(this);
    this.offerColours();
    const scale = this.find(".scale");
    scale.hidden = !this.focus || !this.focus.weights;
    if (!this.focus || !this.focus.weights) return;
    const [low, high] = weightRange(this.focus.weights, this.focus.node);
    const ends = `from grey (${weightText(low)} or less) to yellow (${weightText(high)})`;
    const name = printable(this.explorer.ids[this.focus.node], 60);
    scale.textContent = `Colour and size: attention of ${name} to each node, ${ends}.`;
  }

  /** Computes the attention of a node. @param {number} node @returns {Focus} */
  look(node) {
    const { graph, classes, classNames, header } = this.explorer;
    const decay = this.decay();
    const hops = new Int32Array(header.nodes);
    const reached = countHops(graph, node, hops);
    const neighbours = [...new Set(graph.sources.subarray(graph.starts[node], graph.starts[node + 1]))];
    const weights = decay === null && !this.far ? null : new Float32Array(header.nodes);
    if (weights && this.far) readNeighbours(this.far, node).forEach((weight, target) => { weights[target] = weight; });
    const entropy = weights && decay !== null ? attend(this.points, graph.batch, node, decay, weights) : NaN;
    return {
      node, weights, entropy, hops, neighbours, local: this.neighbourWeights(node),
      targets: weights ? strongest(weights, LISTED + 1) : [],
      reach: weights && !this.far ? reachOf(weights, reached, hops, classes, classNames.length, node) : null,
    };
  }

  /** Averages attention by class, after a pause, unless something changes meanwhile. */
  async summarise() {
    const version = ++this.version;
    const { classes, classNames, graph } = this.explorer;
    const decay = this.decay();
    showReach(this, null);
    await new Promise((resume) => setTimeout(resume, 150));
    if (version !== this.version || !classes || decay === null) return;
    const summary = await reachByClass(this.points, graph, decay, classes, classNames.length, () => version !== this.version);
    if (summary) showReach(this, summary);
  }

  reselect() {
    this.overlay.selected = this.explorer.selection ? this.explorer.selection.nodes : [];
    this.overlay.draw();
    showSelection(this);
  }

  /** What is known of a node. @param {number} node @returns {string[][]} */
  facts(node) {
    const names = this.colourNames();
    return names.filter((name) => name !== ENTROPY).map((name) => {
      const { values, categories } = /** @type {Loaded} */ (this.columns.find((column) => column.name === name));
      const value = values[node];
      if (categories) return [printable(name, 30), printable(categories[value] || noneOf(name), 60)];
      return [printable(name, 30), Number.isNaN(value) ? noneOf(name, "–") : brief(value)];
    });
  }

  /** @param {number} node @returns {string[]} */
  predictionCells(node) {
    const column = this.column("prediction");
    return column && column.categories ? [printable(column.categories[column.values[node]] || "none", 30)] : [];
  }

  /** Goes to the next layer or head. @param {"view" | "head"} what @param {number} by */
  step(what, by) {
    const select = this.find(`.${what}`);
    const next = select.selectedIndex + by;
    if (next < 0 || next >= select.options.length) return;
    select.selectedIndex = next;
    select.dispatchEvent(new Event("change"));
  }

  /** The keys that a picture obeys. @returns {Object<string, () => void>} */
  plotKeys() {
    const { plot, explorer } = this;
    const frame = plot.frame();
    const middle = () => {
      const node = plot.nearest(frame.left + frame.width / 2, frame.top + frame.height / 2, Infinity);
      if (node !== null) explorer.focusOn(node);
    };
    return {
      ArrowLeft: () => plot.move(-0.1, 0), ArrowRight: () => plot.move(0.1, 0), ArrowUp: () => plot.move(0, 0.1),
      ArrowDown: () => plot.move(0, -0.1), "+": () => plot.move(0, 0, 0.8), "-": () => plot.move(0, 0, 1.25),
      0: () => plot.reset(), Enter: middle,
    };
  }

  async savePicture() {
    const focus = this.focus ? `, attention of ${this.explorer.ids[this.focus.node]}` : "";
    const colour = this.focus && this.focus.weights ? "" : `, by ${this.colourName()}`;
    const shown = `${this.view().name}, head ${this.head()}${colour}${focus}`;
    const caption = `${this.explorer.header.title}: ${this.header.title}, ${shown}`;
    const marks = this.focus && this.focus.weights
      ? scaleMarks(this.focus) : this.groups.filter((group) => !this.off.has(group.label));
    download(await this.overlay.picture(caption, marks), "picture.png");
  }
}

/** @param {HTMLSelectElement} select @param {string[]} names @param {number} chosen */
function setOptions(select, names, chosen = 0) {
  select.replaceChildren(...names.map((name) => make("option", { textContent: printable(name, 40), value: name })));
  select.selectedIndex = chosen;
}

/** The axes to draw points along: their dimensions, then, of more than two, their principal axes. @param {number} dim */
function axisNames(dim) {
  if (dim === 1) return ["dimension 1", "at random"];
  const names = Array.from({ length: dim }, (_, axis) => `dimension ${axis + 1}`);
  return dim === 2 ? names : [...names, ...names.map((_, axis) => `principal axis ${axis + 1}`)];
}

/** What the nodes are called for which a column has nothing. @param {string} name @param {string} other */
function noneOf(name, other = "none") {
  return ["class", "label", "correctness"].includes(name) ? "unlabelled" : other;
}

/** Numbers at random, the same ones every time, so that dots on one axis do not hide each other. @param {number} count */
function spreadOut(count) {
  let state = 1;
  return Float32Array.from({ length: count }, () => (state = (state * 48271) % 2147483647) / 2147483647);
}
