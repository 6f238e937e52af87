// @ts-check
"use strict";

/** Connects the pointer with a picture. @param {SideView} side */
function connectPointer(side) {
  const { plot, explorer } = side;
  const { element } = plot;
  const tip = side.find(".tip");
  const place = (/** @type {MouseEvent} */ event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  /** @type {number[] | null} */
  let pressed = null;
  // While the event goes down: the library stops some on their way up.
  element.addEventListener("pointerdown", (event) => (pressed = place(event)), true);
  window.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    const still = pressed && Math.hypot(x - pressed[0], y - pressed[1]) <= STILL;
    const inPicture = event.target instanceof Element && !event.target.closest(".modebar-container");
    pressed = null;
    if (!still || !inPicture) return;
    const node = plot.nearest(x, y);
    if (node !== null) explorer.focusOn(node, event.timeStamp);
  }, true);
  element.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    const node = event.buttons ? null : plot.nearest(x, y);
    tip.hidden = node === null;
    if (node === null) return;
    const kind = explorer.classes ? explorer.classNames[explorer.classes[node]] : undefined;
    tip.textContent = printable(explorer.ids[node], 80) + (kind === undefined ? "" : `, ${printable(kind, 30)}`);
    tip.style.left = `${Math.min(x + 12, element.clientWidth - 120)}px`;
    tip.style.top = `${y + 12}px`;
  });
  element.addEventListener("pointerleave", () => (tip.hidden = true));
}

/** Connects what the library's axes and tools do with a picture. @param {SideView} side */
function connectLibrary(side) {
  const { plot, explorer } = side;
  const library = /** @type {any} */ (plot.element);
  library.on("plotly_relayouting", () => side.repaint(MOVING));
  for (const name of ["plotly_relayout", "plotly_afterplot"]) library.on(name, () => side.repaint());
  library.on("plotly_selected", (/** @type {any} */ event) => {
    if (!event || !(event.range || event.lassoPoints)) return;
    explorer.select(plot.inside(event), "drawn around");
    plot.drawAxes(); // takes the library's own mark of the selection away
  });
}
