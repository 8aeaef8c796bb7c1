// Zoom, copy, jump. The page says everything without this; here the drawing gets a lens.
"use strict";
(() => {
  const byId = id => document.getElementById(id);
  // `tribunal serve` pages through the recording's rows; a file, or a page that was published, cannot.
  if (["127.0.0.1", "localhost"].includes(location.hostname))
    for (const link of document.querySelectorAll("a.served")) { link.href = link.dataset.rows; link.hidden = false; }
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
  const LEFT = +drawing.dataset.left, PLOT = +drawing.dataset.plot, START = +drawing.dataset.start, END = +drawing.dataset.end, WHOLE = END - START;
  const SVG = "http://www.w3.org/2000/svg", CHARACTER = 6.4, LEAST = WHOLE / 5000;
  const STEPS = [.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 3600, 36000];
  const marks = [...drawing.querySelectorAll(".mark")].map(group => ({
    rects: [...group.querySelectorAll("rect")], text: group.querySelector("text"),
    x: +group.querySelector("rect").getAttribute("x"), width: +group.querySelector("rect").getAttribute("width"),
  }));
  const stretched = [...drawing.querySelectorAll(".lines, .moment")];
  const charts = [...drawing.querySelectorAll("g.chart")].map(group => ({
    lines: group.querySelector(".lines"), y: +group.dataset.y, low: +group.dataset.low, high: +group.dataset.high,
    labels: [...group.querySelectorAll(".scale-label")],
    words: [...group.querySelectorAll(".word")].map(text => ({ text, x: +text.getAttribute("x"), y: +text.getAttribute("y") })),
  }));
  const CHART = 130;
  const series = [...drawing.querySelectorAll("path[data-values]")].map(path => ({
    name: path.dataset.name, title: path.closest("g.chart, g:has(> text.h)").querySelector("text.h").textContent.split(":")[0],
    lines: path.parentElement, quiet: !!path.closest("g.chart[data-lens]"), // the lens has the same values
    points: path.dataset.values.trim().split(" ").map(pair => pair.split(":").map(Number)).map(([at, value]) => [at / 1000, value]),
  }));
  const events = JSON.parse(drawing.dataset.events);
  let from = START, to = END, pointed = null; // what is shown, and the moment that was pointed at last
  // The value of a step line at a moment: that of the last point before it.
  const place = (points, at) => {
    let low = 0, high = points.length;
    while (low < high) { const middle = (low + high) >> 1; if (points[middle][0] <= at) low = middle + 1; else high = middle; }
    return low - 1;
  };
  const figure = value => value >= 1000 ? Math.round(value).toLocaleString("en") : +value.toFixed(value < 10 ? 2 : 0);
  // What the chart's lines reach in the stretch that is shown: its scale fits that.
  const reach = chart => {
    if (from <= START && to >= END) return [chart.low, chart.high];
    let least = Infinity, most = -Infinity;
    for (const one of series) {
      if (one.lines !== chart.lines) continue;
      for (let i = Math.max(0, place(one.points, from)); i < one.points.length && one.points[i][0] <= to; i++) {
        if (one.points[i][1] < 0) continue; // not known
        const value = Math.min(Math.max(one.points[i][1], chart.low), chart.high);
        least = Math.min(least, value);
        most = Math.max(most, value);
      }
    }
    if (least > most) return [chart.low, chart.high];
    const room = Math.max((most - least) * .05, (chart.high - chart.low) / 1e4);
    return [Math.max(chart.low, least - room), Math.min(chart.high, most + room)];
  };

  const show = () => {
    const scale = WHOLE / (to - from), shift = LEFT - scale * (LEFT + PLOT * (from - START) / WHOLE);
    for (const group of stretched) group.setAttribute("transform", `matrix(${scale} 0 0 1 ${shift} 0)`);
    for (const chart of charts) {
      const [low, high] = reach(chart), whole = chart.high - chart.low;
      const up = whole / (high - low), bottom = chart.y + CHART;
      const down = bottom - up * (bottom - CHART * (low - chart.low) / whole);
      chart.lines.setAttribute("transform", `matrix(${scale} 0 0 ${up} ${shift} ${down})`);
      chart.labels.forEach((label, i) => { label.textContent = figure(low + (high - low) * i / (chart.labels.length - 1)); });
      for (const word of chart.words) {
        const x = shift + scale * word.x;
        word.text.setAttribute("x", x);
        word.text.setAttribute("y", Math.min(Math.max(down + up * word.y, chart.y + 9), bottom));
        word.text.setAttribute("visibility", x >= LEFT && x <= LEFT + PLOT ? "visible" : "hidden");
      }
    }
    brushed();
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
    if (pointed !== null) pointAt(pointed);
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
  const box = byId("brush");
  const at = moment => LEFT + PLOT * moment / END;
  const brushed = () => {
    if (!box) return;
    byId("window").setAttribute("x", at(from));
    byId("window").setAttribute("width", Math.max(1, at(to) - at(from)));
    byId("from-edge").setAttribute("x", at(from) - 4);
    byId("to-edge").setAttribute("x", at(to) - 4);
    for (const [name, moment] of [["from", from], ["to", to]]) {
      const range = byId(`${name}-range`);
      range.value = 1000 * moment / END;
      range.setAttribute("aria-valuetext", `${moment.toFixed(3)} s`);
    }
  };
  const zoom = (start, end) => {
    const width = Math.min(Math.max(end - start, LEAST), WHOLE);
    from = Math.min(Math.max(START, start), END - width);
    to = from + width;
    show();
  };
  const about = (middle, factor) => zoom(middle - (middle - from) * factor, middle + (to - middle) * factor);
  const pan = share => zoom(from + (to - from) * share, to + (to - from) * share);
  const around = at => zoom(at - WHOLE / 20, at + WHOLE / 20);
  const follow = address => {
    const asked = /^#t=([\d.]+),([\d.]+)$/.exec(address);
    if (asked) { zoom(+asked[1], +asked[2]); byId("timeline").scrollIntoView(); }
    return asked !== null;
  };
  const deeds = {
    in: () => about((from + to) / 2, .5), out: () => about((from + to) / 2, 2), left: () => pan(-.4), right: () => pan(.4),
    all: () => zoom(START, END), mark: button => around(+button.dataset.at),
    next: () => step(1), previous: () => step(-1),
    first: () => zoom(START, START + to - from), last: () => zoom(END - (to - from), END),
    violation: () => { const button = document.querySelector("[data-do=mark]"); if (button) around(+button.dataset.at); },
  };
  let current = -1;
  const step = way => {
    if (!events.length) return;
    const width = Math.min(to - from, WHOLE / 4);
    current = current < 0 ? (way > 0 ? 0 : events.length - 1) : Math.min(Math.max(current + way, 0), events.length - 1);
    const [moment, words] = events[current];
    zoom(moment - width / 2, moment + width / 2);
    pointAt(moment);
    byId("spoken").textContent = `${moment.toFixed(3)} s: ${words} (${current + 1} of ${events.length})`;
  };
  byId("tools").hidden = false;
  byId("tools").addEventListener("click", event => {
    const button = event.target.closest("button");
    if (button) deeds[button.dataset.do](button);
  });
  const keys = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", 0: "all", n: "next", p: "previous", v: "violation", Home: "first", End: "last" };
  // Also at a button: who has pressed "Next event" goes on with n.
  for (const place of [drawing.parentElement, byId("tools")]) place.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    deeds[keys[event.key]]();
  });
  // With a script a time is a link to its stretch, which can be sent to others; without it, to the drawing.
  for (const link of document.querySelectorAll("a.when")) {
    const moment = +link.dataset.at;
    if (drawing.dataset.whole && (moment < START || moment > END)) { // this page is of a stretch only
      link.href = `${drawing.dataset.whole}#t=${Math.max(0, moment - WHOLE / 20).toFixed(3)},${(moment + WHOLE / 20).toFixed(3)}`;
      continue;
    }
    link.hash = `t=${Math.max(START, moment - WHOLE / 20).toFixed(3)},${Math.min(END, moment + WHOLE / 20).toFixed(3)}`;
    link.addEventListener("click", () => { // the address does not change where it is followed for the second time
      follow(link.hash);
      drawing.parentElement.focus({ preventScroll: true });
    });
  }

  const second = event => {
    const box = drawing.getBoundingClientRect();
    const x = (event.clientX - box.left) * drawing.viewBox.baseVal.width / box.width;
    return from + (to - from) * Math.min(Math.max((x - LEFT) / PLOT, 0), 1);
  };
  const crosshair = byId("crosshair"), readout = byId("readout");
  const pointAt = moment => {
    pointed = moment;
    const x = LEFT + PLOT * (moment - from) / (to - from);
    crosshair.setAttribute("transform", `translate(${x} 0)`);
    crosshair.setAttribute("visibility", x < LEFT || x > LEFT + PLOT ? "hidden" : "visible");
    const said = [];
    let title = "";
    for (const one of series) {
      const i = place(one.points, moment);
      if (i < 0 || one.quiet || one.points[i][1] < 0) continue;
      said.push(`${one.title === title ? "" : `| ${one.title}: `}${one.name} ${figure(one.points[i][1])}`);
      title = one.title;
    }
    readout.hidden = false;
    readout.textContent = `${moment.toFixed(3)} s ${said.join("  ")}`;
  };
  drawing.addEventListener("pointermove", event => { if (event.pointerType !== "touch") pointAt(second(event)); });
  drawing.addEventListener("pointerleave", () => { pointed = null; crosshair.setAttribute("visibility", "hidden"); });
  if (box) {
    byId("brush-box").hidden = byId("edges").hidden = false;
    const moment = event => {
      const place = box.getBoundingClientRect();
      return END * Math.min(Math.max(((event.clientX - place.left) * box.viewBox.baseVal.width / place.width - LEFT) / PLOT, 0), 1);
    };
    let held = null;
    box.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      const start = moment(event), near = END * 8 / PLOT, wide = from > 0 || to < END;
      const what = Math.abs(start - from) < near ? "from" : Math.abs(start - to) < near ? "to" : wide && start > from && start < to ? "move" : "new";
      held = { start, what, from, to };
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", event => {
      if (!held) return;
      const now = moment(event), by = now - held.start;
      if (held.what === "from") zoom(Math.min(now, held.to - LEAST), held.to);
      else if (held.what === "to") zoom(held.from, Math.max(now, held.from + LEAST));
      else if (held.what === "move") zoom(held.from + by, held.to + by);
      else if (Math.abs(by) > END / 200) zoom(Math.min(now, held.start), Math.max(now, held.start));
    });
    for (const name of ["pointerup", "pointercancel"]) box.addEventListener(name, () => { held = null; });
    byId("from-range").addEventListener("input", event => zoom(Math.min(END * event.target.value / 1000, to - LEAST), to));
    byId("to-range").addEventListener("input", event => zoom(from, Math.max(END * event.target.value / 1000, from + LEAST)));
  }
  const chosen = byId("chosen");
  let began = null, moved = null; // where a stretch begins; what was shown where a hand took hold of the drawing
  const mark = end => {
    const x = at => LEFT + PLOT * (at - from) / (to - from);
    chosen.setAttribute("x", x(Math.min(began, end)));
    chosen.setAttribute("width", Math.abs(x(end) - x(began)));
  };
  drawing.addEventListener("pointerdown", event => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    if (event.shiftKey) { event.preventDefault(); drawing.parentElement.focus({ preventScroll: true }); moved = { x: event.clientX, from, to }; }
    else began = second(event);
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", event => {
    if (began !== null) mark(second(event));
    if (moved === null) return;
    const by = (moved.to - moved.from) * (moved.x - event.clientX) * drawing.viewBox.baseVal.width / drawing.getBoundingClientRect().width / PLOT;
    zoom(moved.from + by, moved.to + by);
  });
  drawing.addEventListener("pointercancel", () => { began = moved = null; chosen.setAttribute("width", 0); });
  drawing.addEventListener("pointerup", event => {
    moved = null;
    if (began === null) return;
    const start = began, end = second(event);
    began = null;
    chosen.setAttribute("width", 0);
    if (Math.abs(end - start) > (to - from) / 200) zoom(Math.min(start, end), Math.max(start, end));
  });
  drawing.addEventListener("dblclick", () => zoom(START, END));
  drawing.addEventListener("wheel", event => { // a plain wheel scrolls the page
    if (!event.ctrlKey) return;
    event.preventDefault();
    about(second(event), event.deltaY > 0 ? 1.25 : .8);
  }, { passive: false });
  let before = null; // what was shown when the page was printed: on paper is all of it
  addEventListener("beforeprint", () => { before = [from, to]; zoom(START, END); });
  addEventListener("afterprint", () => { if (before) zoom(...before); before = null; });
  addEventListener("hashchange", () => follow(location.hash));
  if (!follow(location.hash)) show();
})();
