// Zoom, copy, jump. The page says everything without this; here the drawing gets a lens.
"use strict";
(() => {
  const byId = id => document.getElementById(id);
  const copy = byId("copy");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    const line = byId("again");
    let done = true;
    try { await navigator.clipboard.writeText(line.textContent); }
    catch { // opened as a file, or refused: the selection can be copied by hand
      getSelection().selectAllChildren(line);
      done = document.execCommand("copy");
    }
    byId("copied").textContent = done ? "copied" : "selected: copy it with Ctrl+C";
  });

  const drawing = byId("drawing");
  if (!drawing) return;
  const LEFT = +drawing.dataset.left, PLOT = +drawing.dataset.plot, END = +drawing.dataset.end;
  const SVG = "http://www.w3.org/2000/svg", CHARACTER = 6.4, LEAST = END / 5000;
  const STEPS = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 3600, 36000];
  const marks = [...drawing.querySelectorAll(".mark")].map(group => ({
    rects: [...group.querySelectorAll("rect")], text: group.querySelector("text"),
    x: +group.querySelector("rect").getAttribute("x"), width: +group.querySelector("rect").getAttribute("width"),
  }));
  const stretched = [...drawing.querySelectorAll(".lines, .moment")];
  let from = 0, to = END;

  const show = () => {
    const scale = END / (to - from), shift = LEFT - scale * (LEFT + PLOT * from / END);
    for (const group of stretched) group.setAttribute("transform", `matrix(${scale} 0 0 1 ${shift} 0)`);
    for (const mark of marks) {
      const x = Math.max(shift + scale * mark.x, LEFT - 2);
      const end = Math.min(shift + scale * (mark.x + mark.width), LEFT + PLOT + 2);
      for (const rect of mark.rects) { rect.setAttribute("x", x); rect.setAttribute("width", Math.max(0, end - x)); }
      if (mark.text) {
        mark.text.setAttribute("x", x + 4);
        mark.text.setAttribute("visibility", mark.text.textContent.length * CHARACTER <= end - x - 6 ? "visible" : "hidden");
      }
    }
    ticks(scale, shift);
    byId("range").textContent = `${from.toFixed(3)} s to ${to.toFixed(3)} s`;
  };
  const ticks = () => {
    const step = STEPS.find(step => (to - from) / step <= 12) || 1e9;
    const height = drawing.viewBox.baseVal.height, digits = step < 1 ? Math.ceil(-Math.log10(step)) : 0;
    const made = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) {
      const x = LEFT + PLOT * (i * step - from) / (to - from);
      const line = document.createElementNS(SVG, "line"), text = document.createElementNS(SVG, "text");
      for (const [name, value] of Object.entries({ class: "tick", x1: x, x2: x, y1: 18, y2: height })) line.setAttribute(name, value);
      for (const [name, value] of Object.entries({ class: "m", x, y: 12, "text-anchor": "middle" })) text.setAttribute(name, value);
      text.textContent = (i * step).toFixed(digits);
      made.push(line, text);
    }
    byId("ticks").replaceChildren(...made);
  };
  const zoom = (start, end) => {
    const width = Math.min(Math.max(end - start, LEAST), END);
    from = Math.min(Math.max(0, start), END - width);
    to = from + width;
    show();
  };
  const about = (middle, factor) => zoom(middle - (middle - from) * factor, middle + (to - middle) * factor);
  const pan = share => zoom(from + (to - from) * share, to + (to - from) * share);
  const around = at => zoom(at - END / 20, at + END / 20);
  const deeds = {
    in: () => about((from + to) / 2, .5), out: () => about((from + to) / 2, 2), left: () => pan(-.4), right: () => pan(.4),
    all: () => zoom(0, END), mark: button => around(+button.dataset.at),
  };
  byId("tools").hidden = false;
  byId("tools").addEventListener("click", event => {
    const button = event.target.closest("button");
    if (button) deeds[button.dataset.do](button);
  });
  const keys = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "all" };
  drawing.parentElement.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    deeds[keys[event.key]]();
  });
  for (const link of document.querySelectorAll("a.when")) link.addEventListener("click", () => around(+link.dataset.at));

  const second = event => {
    const box = drawing.getBoundingClientRect();
    const x = (event.clientX - box.left) * drawing.viewBox.baseVal.width / box.width;
    return from + (to - from) * Math.min(Math.max((x - LEFT) / PLOT, 0), 1);
  };
  const chosen = byId("chosen");
  let began = null;
  const mark = end => {
    const x = at => LEFT + PLOT * (at - from) / (to - from);
    chosen.setAttribute("x", x(Math.min(began, end)));
    chosen.setAttribute("width", Math.abs(x(end) - x(began)));
  };
  drawing.addEventListener("pointerdown", event => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    began = second(event);
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", event => { if (began !== null) mark(second(event)); });
  drawing.addEventListener("pointercancel", () => { began = null; chosen.setAttribute("width", 0); });
  drawing.addEventListener("pointerup", event => {
    if (began === null) return;
    const start = began, end = second(event);
    began = null;
    chosen.setAttribute("width", 0);
    if (Math.abs(end - start) > (to - from) / 200) zoom(Math.min(start, end), Math.max(start, end));
  });
  drawing.addEventListener("dblclick", () => zoom(0, END));
  drawing.addEventListener("wheel", event => { // a plain wheel scrolls the page
    if (!event.ctrlKey) return;
    event.preventDefault();
    about(second(event), event.deltaY > 0 ? 1.25 : .8);
  }, { passive: false });
  addEventListener("beforeprint", () => zoom(0, END));
  const asked = /^#t=([\d.]+),([\d.]+)$/.exec(location.hash);
  if (asked) { zoom(+asked[1], +asked[2]); byId("timeline").scrollIntoView(); } else show();
})();
