// Charts over time, as SVG: lines, steps and bands, with one cross-hair for all charts.

import { h, svg, swatch } from "./dom.js";
import { clock } from "./format.js";

const EDGE = { left: 52, right: 14, top: 12, bottom: 24 };
const STEPS_S = [300, 600, 900, 1800, 3600, 7200, 10800, 21600];
const all = []; // every chart of the page, for the common cross-hair

// `layers` are drawn in order, each over `start` + i * `step` (Unix seconds), with gaps where a value is null:
//   {kind: "line" | "step" | "band" | "steps", style, start, step, values, low, name, says}
// Bands lie between `low` and `values`; "step" and "steps" hold a value until the next. The tooltip has a line for each
// layer with a name, with the text `says(i)`.
export class Chart {
  constructor(host) {
    this.host = host;
    this.canvas = svg("svg", { role: "img" });
    this.tip = h("div", { class: "tip", hidden: "" });
    host.append(this.canvas, this.tip);
    host.addEventListener("pointermove", (event) => this.#point(event));
    host.addEventListener("pointerleave", () => all.forEach((chart) => chart.#hide()));
    new ResizeObserver(() => this.shown && this.draw(this.shown)).observe(host);
    all.push(this);
  }

  // {from, to, now (Unix seconds), layers, write (number -> text), least, most (of the y axis; both may be missing)}
  draw(shown) {
    this.shown = shown;
    const width = this.host.clientWidth, height = this.host.clientHeight;
    if (width < 80) return;
    const { from, to, layers, write } = shown;
    const [least, most, ticks] = scale(layers, shown.least ?? 0, shown.most);
    const x = (s) => EDGE.left + ((s - from) / (to - from)) * (width - EDGE.left - EDGE.right);
    const y = (v) => height - EDGE.bottom - ((v - least) / (most - least)) * (height - EDGE.top - EDGE.bottom);
    this.x = x;
    const parts = ticks.flatMap((v) => [
      svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(v), y2: y(v) }),
      svg("text", { class: "axis", x: EDGE.left - 8, y: y(v) + 4, "text-anchor": "end" }, write(v)),
    ]);
    for (const s of moments(from, to, width)) {
      parts.push(svg("text", { class: "axis", x: x(s), y: height - 6, "text-anchor": "middle" }, clock(s)));
    }
    if (to > shown.now + 60) {
      parts.push(svg("line", { class: "now", x1: x(shown.now), x2: x(shown.now), y1: EDGE.top, y2: height - EDGE.bottom }));
      parts.push(svg("text", { class: "axis", x: x(shown.now) + 5, y: EDGE.top + 8 }, "now"));
    }
    for (const layer of layers) parts.push(svg("path", { class: `${layer.kind} ${layer.style}`, d: outline(layer, x, y) }));
    this.cross = svg("line", { class: "cross", y1: EDGE.top, y2: height - EDGE.bottom, visibility: "hidden" });
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.replaceChildren(...parts, this.cross);
  }

  #point(event) {
    if (!this.shown) return;
    const box = this.host.getBoundingClientRect();
    const { from, to } = this.shown;
    const share = (event.clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right);
    all.forEach((chart) => chart.#hide());
    if (share < 0 || share > 1) return;
    const at = from + share * (to - from);
    all.forEach((chart) => chart.#show(at, chart === this));
  }

  #show(at, tip) {
    const { shown } = this;
    if (!shown || at > shown.to || !this.host.clientWidth) return;
    const place = this.x(at);
    this.cross.setAttribute("x1", place);
    this.cross.setAttribute("x2", place);
    this.cross.setAttribute("visibility", "visible");
    if (!tip) return;
    const rows = shown.layers.flatMap((layer) => {
      const i = Math.floor((at - layer.start) / layer.step);
      if (!layer.name || i < 0 || i >= layer.values.length || layer.values[i] === null) return [];
      const says = layer.says ? layer.says(i) : shown.write(layer.values[i]);
      return says === null ? [] : [h("div", {}, swatch(layer.style), h("span", {}, layer.name), h("b", {}, says))];
    });
    this.tip.replaceChildren(h("p", {}, clock(at)), ...rows);
    this.tip.hidden = false;
    const right = place > this.host.clientWidth / 2;
    this.tip.style.left = right ? "" : `${place + 14}px`;
    this.tip.style.right = right ? `${this.host.clientWidth - place + 14}px` : "";
  }

  #hide() {
    this.tip.hidden = true;
    this.cross?.setAttribute("visibility", "hidden");
  }
}

// The ends of the y axis and its ticks: 1, 2 or 5 x a power of ten apart, about four of them.
function scale(layers, least, most) {
  let highest = most ?? 0;
  if (most === undefined) {
    for (const layer of layers) for (const v of layer.values) if (v !== null && v > highest) highest = v;
    highest *= 1.06;
  }
  if (!(highest > least)) highest = least + 1;
  const rough = (highest - least) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const apart = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(least / apart - 1e-9); i * apart <= highest * (1 + 1e-9); i += 1) ticks.push(i * apart || 0) /* no minus zero */;
  return [least, highest, ticks];
}

// Round times of day for the x axis, at least 70 pixels apart.
function moments(from, to, width) {
  const apart = STEPS_S.find((s) => ((to - from) / s) * 70 <= width) ?? 43200;
  const shift = new Date(from * 1e3).getTimezoneOffset() * 60;
  const found = [];
  for (let s = Math.ceil((from - shift) / apart) * apart + shift; s <= to; s += apart) found.push(s);
  return found;
}

function outline({ kind, start, step, values, low }, x, y) {
  const at = (i) => x(start + i * step).toFixed(1);
  const middle = (i) => x(start + (i + 0.5) * step).toFixed(1);
  const stepped = kind.startsWith("step");
  const runs = []; // [first, one after the last] of each run of values without a gap
  values.forEach((v, i) => {
    if (v === null) return;
    if (runs.length && runs.at(-1)[1] === i) runs.at(-1)[1] = i + 1;
    else runs.push([i, i + 1]);
  });
  const over = (indices, heights, began) =>
    indices.map((i, n) => {
      const height = y(heights[i]).toFixed(1), pen = n || began ? "L" : "M";
      if (!stepped) return `${pen}${middle(i)} ${height}`;
      const [a, b] = began ? [at(i + 1), at(i)] : [at(i), at(i + 1)];
      return `${pen}${a} ${height}H${b}`;
    }).join("");
  return runs.map(([a, b]) => {
    const indices = Array.from({ length: b - a }, (_, n) => a + n);
    const top = over(indices, values, false);
    return low ? `${top}${over(indices.reverse(), low, true)}Z` : top;
  }).join("");
}
