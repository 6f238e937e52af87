// @ts-check
"use strict";

/**
 * Shows where attention falls, averaged by class.
 * @param {SideView} side
 * @param {{rows: Reach[], sampled: number} | null} summary
 */
function showReach(side, summary) {
  const { explorer } = side;
  const section = /** @type {HTMLElement} */ (side.root.querySelector(".reach"));
  section.hidden = !explorer.classes || side.decay() === null;
  if (!summary) {
    side.panel("reach").replaceChildren(makeNote("Computing…"));
    return;
  }
  const names = explorer.classNames.map((name) => printable(name, 16));
  const within = Array.from({ length: FARTHEST }, (_, hop) => (hop ? `≤ ${hop + 1} edges` : "neighbours"));
  const far = summary.rows.map((row, kind) => [names[kind], ...[row.itself, ...row.within, row.own].map(shareCell)]);
  const classes = summary.rows.map((row, kind) => [names[kind], ...Array.from(row.classes, shareCell)]);
  const all = summary.sampled === explorer.header.nodes;
  const counted = all ? "of all nodes" : `of ${summary.sampled.toLocaleString("en")} nodes drawn at random`;
  const text = `Mean share of attention ${counted}; neighbours and edges count the node itself. Own class: of the attention to `
    + "labelled nodes. Below: the class attended to.";
  side.panel("reach").replaceChildren(makeTable(["class", "itself", ...within, "own class"], far),
    makeTable(["class ↓ attends to →", ...names], classes), makeNote(text));
}

/** @param {number} share */
function shareCell(share) {
  const cell = make("span", { className: "share", textContent: percent(share) });
  cell.style.setProperty("--share", String(Number.isFinite(share) ? share : 0));
  return cell;
}

/**
 * Shows how often each class was predicted for nodes of each class; a cell selects its nodes.
 * @param {SideView} side
 */
function showConfusion(side) {
  const { explorer } = side;
  const prediction = side.column("prediction"); // of categories, so not where numbers are predicted
  const section = /** @type {HTMLElement} */ (side.root.querySelector(".confusion"));
  section.hidden = !explorer.classes || !prediction;
  if (!explorer.classes || !prediction) return;
  const split = side.column("split");
  const wanted = /** @type {HTMLSelectElement} */ (section.querySelector(".set")).value;
  const role = split && split.categories ? split.categories.indexOf(wanted) : -1;
  const count = explorer.classNames.length;
  /** @type {number[][][]} */
  const cells = Array.from({ length: count }, () => Array.from({ length: count }, () => []));
  for (let node = 0; node < explorer.header.nodes; node++) {
    if (role >= 0 && split && split.values[node] !== role) continue;
    if (explorer.classes[node] >= 0) cells[explorer.classes[node]][prediction.values[node]].push(node);
  }
  const names = explorer.classNames.map((name) => printable(name, 16));
  const rows = cells.map((row, kind) => {
    const total = row.reduce((sum, nodes) => sum + nodes.length, 0);
    return [names[kind], ...row.map((nodes, said) => confusionCell(side, nodes, kind, said, total))];
  });
  side.panel("confusion").replaceChildren(makeTable(["class ↓ predicted →", ...names], rows));
}

/**
 * @param {SideView} side
 * @param {number[]} nodes
 * @param {number} kind
 * @param {number} said
 * @param {number} total How many nodes the row has.
 */
function confusionCell(side, nodes, kind, said, total) {
  const { explorer } = side;
  const label = `${explorer.classNames[kind]} predicted as ${explorer.classNames[said]}`;
  const pressed = () => explorer.select(Int32Array.from(nodes), label);
  const className = kind === said ? "share" : "share wrong";
  const cell = make("button", { type: "button", className, textContent: String(nodes.length), onclick: pressed });
  cell.setAttribute("aria-label", `${nodes.length} nodes: ${printable(label, 80)}`);
  cell.style.setProperty("--share", String(total ? nodes.length / total : 0));
  return cell;
}

/**
 * Draws losses, and what else was recorded along training, with a mark at the epoch whose weights are shown.
 * @param {SideView} side
 */
async function showCurves(side) {
  const { curves, bestEpoch, facts } = side.header;
  const body = side.panel("curves");
  body.replaceChildren(makeTable([], facts.map(([name, value]) => [printable(name), printable(value, 300)])));
  const epochs = curves.epoch;
  if (!epochs) return;
  const names = Object.keys(curves).filter((name) => name !== "epoch");
  const kinds = [names.filter((name) => name.includes("loss")), names.filter((name) => !name.includes("loss"))];
  for (const shown of kinds.filter((kind) => kind.length)) {
    const element = make("div", { className: "curve" });
    body.append(element);
    const traces = shown.map((name, number) => ({
      x: epochs, y: curves[name], name: name.replaceAll("_", " ").replace(/[<>&]/g, "?"), mode: "lines",
      line: { color: PALETTE[number], width: 1.5 }, hoverinfo: "skip",
    }));
    const line = { color: "#888", dash: "dot", width: 1 };
    const mark = { type: "line", x0: bestEpoch, x1: bestEpoch, y0: 0, y1: 1, yref: "paper", line };
    const axis = { zeroline: false, gridcolor: "#8884", fixedrange: true };
    const layout = {
      height: 170, margin: { l: 44, r: 8, t: 8, b: 30 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: "#808080", size: 11 }, legend: { orientation: "h", y: 1.15 }, showlegend: true, hovermode: false,
      xaxis: { ...axis, title: { text: "epoch" } }, yaxis: axis, shapes: bestEpoch === null ? [] : [mark],
    };
    // @ts-ignore: the library is not typed here
    await Plotly.newPlot(element, traces, layout, { displayModeBar: false, responsive: true });
  }
}

/**
 * Writes a table as CSV. A cell that a spreadsheet would take for a formula gets an apostrophe.
 * @param {(string | number)[][]} rows
 */
function toCSV(rows) {
  const cell = (/** @type {string | number} */ value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/**
 * Hands a file to the reader.
 * @param {Blob} content
 * @param {string} name
 */
function download(content, name) {
  const link = make("a", { href: URL.createObjectURL(content), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
