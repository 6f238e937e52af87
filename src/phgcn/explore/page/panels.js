// @ts-check
"use strict";

/** Rows of a list of nodes. */
const LISTED = 50;

/** What is said of a node before whom it attends to; its other columns come after. */
const FACTS = 3;

/**
 * Makes an element; text is set as text, never as markup.
 * @param {string} tag
 * @param {Object<string, any>} properties
 * @param {(Node | string)[]} children
 * @returns {any}
 */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/**
 * Makes a table of text, numbers and elements.
 * @param {string[]} headings
 * @param {(Node | string)[][]} rows
 */
function makeTable(headings, rows) {
  const head = make("tr", {}, ...headings.map((text) => make("th", { scope: "col", textContent: text })));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

/** Makes a line of small print. @param {string} text */
function makeNote(text) {
  return make("p", { className: "note", textContent: text });
}

/**
 * Makes the name of a node, which goes to the node when it is pressed.
 * @param {Explorer} explorer
 * @param {number} node
 */
function nodeButton(explorer, node) {
  const id = explorer.ids[node];
  const texts = { textContent: printable(id), title: printable(id, 500) };
  return make("button", { type: "button", className: "name", ...texts, onclick: () => explorer.focusOn(node) });
}

/** @param {SideView} side */
function labelHeading(side) {
  return side.explorer.classes ? "class" : "label";
}

/**
 * Says in a cell which class a node has, with its colour; or its number, or its labels.
 * @param {SideView} side
 * @param {number} node
 */
function labelCell(side, node) {
  const { explorer } = side;
  if (!explorer.classes) return labelText(side, node);
  const kind = explorer.classes[node];
  if (kind < 0) return "unlabelled";
  const dot = make("span", { className: "dot" });
  dot.style.background = PALETTE[kind % PALETTE.length];
  return make("span", { className: "class" }, dot, printable(explorer.classNames[kind], 30));
}

/** @param {SideView} side @param {number} node */
function labelText(side, node) {
  const number = side.columns.find(({ name, categories }) => name === "label" && !categories);
  if (number) return Number.isNaN(number.values[node]) ? "unlabelled" : brief(number.values[node]);
  const several = side.columns.filter(({ name }) => name.startsWith("label "));
  if (several.every(({ values }) => values[node] < 0)) return "unlabelled";
  const held = several.filter(({ values }) => values[node] === 1).map(({ name }) => name.slice(6));
  return printable(held.join(", ") || "none", 30);
}

/** Says how many edges away a node is. @param {number} hops */
function hopsText(hops) {
  return hops < 0 ? "no path" : String(hops);
}

/**
 * Shows a node: what is known of it, where its attention falls, whom it attends to, and its neighbours.
 * @param {SideView} side
 */
function showNode(side) {
  const { explorer, focus } = side;
  const [node, everywhere, neighbours] = [side.panel("node"), side.panel("global"), side.panel("neighbours")];
  side.find(".panels .columns").hidden = !focus;
  if (!focus) {
    node.replaceChildren(makeNote("Click a node, or find one by its id."));
    everywhere.replaceChildren();
    neighbours.replaceChildren();
    return;
  }
  node.replaceChildren(make("p", { className: "big name", textContent: printable(explorer.ids[focus.node], 300) }),
    makeTable([], [...side.facts(focus.node).slice(0, FACTS), ...reachRows(side, focus)]));
  const rest = side.facts(focus.node).slice(FACTS);
  side.find(".panels .columns").hidden = !rest.length;
  side.panel("columns").replaceChildren(makeTable([], rest));
  everywhere.replaceChildren(...globalList(side, focus));
  neighbours.replaceChildren(...neighbourList(side, focus));
}

/**
 * @param {SideView} side
 * @param {Focus} focus
 * @returns {string[][]}
 */
function reachRows(side, focus) {
  if (!focus.weights || !focus.reach) return [];
  const { reach } = focus;
  const rows = [
    ["λ", `${brief(side.decay() || 0)}`],
    ["effective nodes", brief(Math.exp(focus.entropy))],
    ["attention to itself", weightText(reach.itself)],
  ];
  if (Number.isFinite(reach.own)) rows.push(["to its own class", percent(reach.own)]);
  reach.within.forEach((share, hop) => {
    rows.push([hop ? `within ${hop + 1} edges` : "to itself and neighbours", percent(share)]);
  });
  return rows;
}

/**
 * @param {SideView} side
 * @param {Focus} focus
 */
function globalList(side, focus) {
  const { weights } = focus;
  if (!weights) return [makeNote("This layer has no attention to all nodes.")];
  const { explorer } = side;
  const rows = focus.targets.slice(0, LISTED).map((target) => [
    nodeButton(explorer, target), labelCell(side, target), weightCell(weights[target]), hopsText(focus.hops[target])]);
  const rest = 1 - focus.targets.slice(0, LISTED).reduce((sum, target) => sum + weights[target], 0);
  const others = focus.targets.length > LISTED ? `all others: ${percent(Math.max(rest, 0))}` : "";
  return [makeTable(["node", labelHeading(side), "weight", "edges away"], rows), makeNote(others)];
}

/**
 * A weight that can be read to six digits in its title.
 * @param {number} weight
 */
function weightCell(weight) {
  const bar = make("span", { className: "weight", textContent: weightText(weight), title: weight.toPrecision(7) });
  bar.dataset.weight = String(weight);
  bar.style.setProperty("--share", `${Math.min(100, 100 * weight)}%`);
  return bar;
}

/**
 * @param {SideView} side
 * @param {Focus} focus
 */
function neighbourList(side, focus) {
  const { explorer } = side;
  const local = focus.local;
  const order = [...focus.neighbours];
  if (local) order.sort((one, other) => (local.get(other) || 0) - (local.get(one) || 0));
  else if (focus.weights) order.sort((one, other) => focus.weights[other] - focus.weights[one]);
  const listed = local && local.has(focus.node) && !order.includes(focus.node) ? [focus.node, ...order] : order;
  if (!listed.length) return [makeNote("The node has no neighbours.")];
  const rows = listed.slice(0, LISTED).map((target) => [
    nodeButton(explorer, target), labelCell(side, target),
    local ? weightCell(local.get(target) || 0) : "–",
    focus.weights ? weightCell(focus.weights[target]) : "–"]);
  const notes = [];
  if (!local) notes.push("This layer has no attention to neighbours.");
  if (listed.length > LISTED) notes.push(`${listed.length - LISTED} more.`);
  return [makeTable(["node", labelHeading(side), "local", "global"], rows), makeNote(notes.join(" "))];
}

/**
 * Shows the selection.
 * @param {SideView} side
 */
function showSelection(side) {
  const { selection } = side.explorer;
  const body = side.panel("selection");
  if (!selection) {
    body.replaceChildren(makeNote("Press a cell below, or draw around nodes with the tools of the picture."));
    return;
  }
  const rows = Array.from(selection.nodes.slice(0, LISTED), (node) => [
    nodeButton(side.explorer, node), labelCell(side, node), ...side.predictionCells(node)]);
  const about = `${selection.nodes.length.toLocaleString("en")} nodes: ${selection.label}`;
  body.replaceChildren(make("p", { className: "count", textContent: printable(about, 120) }),
    makeTable(["node", labelHeading(side), ...(side.predictionCells(0).length ? ["prediction"] : [])], rows));
}

/**
 * Returns some weights of a node's attention, from the least to the largest, and their colours.
 * @param {Focus} focus
 * @returns {{label: string, colour: string, opacity: number}[]}
 */
function scaleMarks({ node, weights }) {
  const [low, high] = weightRange(/** @type {Float32Array} */ (weights), node);
  return [0, 1 / 3, 2 / 3, 1].map((step) => ({
    label: weightText(low * (high / low) ** step), ...attentionColour(step),
  }));
}

/**
 * Makes the legend of colours that mean attention: while a node is in focus, they mean no groups.
 * @param {SideView} side
 * @param {HTMLElement} legend
 * @param {Focus} focus
 */
function showScale(side, legend, focus) {
  const items = scaleMarks(focus).map(({ label, colour, opacity }) => {
    const dot = make("span", { className: "dot" });
    Object.assign(dot.style, { background: colour, opacity });
    return make("span", { className: "class" }, dot, label);
  });
  const back = make("button", { type: "button", textContent: "clear", onclick: () => side.explorer.focusOn(null) });
  const title = make("legend", { textContent: `attention of ${printable(side.explorer.ids[focus.node], 40)}` });
  legend.replaceChildren(title, ...items, back);
}

/**
 * Makes the legend: a box for each group, which shows or hides it.
 * @param {SideView} side
 */
function showLegend(side) {
  const legend = /** @type {HTMLElement} */ (side.root.querySelector(".legend"));
  if (side.focus && side.focus.weights) {
    showScale(side, legend, side.focus);
    return;
  }
  const items = side.groups.map((group) => {
    const changed = (/** @type {Event} */ event) => {
      side.toggle(group.label, /** @type {HTMLInputElement} */ (event.target).checked);
    };
    const box = make("input", { type: "checkbox", checked: !side.off.has(group.label), onchange: changed });
    const dot = make("span", { className: `dot ${group.symbol}` });
    dot.style.background = group.colour;
    return make("label", {}, box, dot, `${printable(group.label, 40)} (${group.nodes.length.toLocaleString("en")})`);
  });
  const all = make("button", { type: "button", textContent: "all", onclick: () => side.toggleAll(true) });
  const none = make("button", { type: "button", textContent: "none", onclick: () => side.toggleAll(false) });
  const title = make("legend", { textContent: printable(side.colourName(), 60) });
  legend.replaceChildren(title, ...items, ...(items.length > 1 ? [all, none] : []));
}
