// One pipeline: its figures, its graph and its stages.

import { read } from "./door.js";
import { find, h, svg } from "./dom.js";
import { NONE, exact, percent, plural, rate, signedUsd, usd } from "./format.js";
import { drawQueries } from "./charts.js";

const LINE = 18, PADDING = 10, MARK = "bottleneck", MOST_POINTS = 480;
let shown = {}; // part -> the data from which it was last drawn
let view = null, past = null;

// Draws the parts whose data changed. Returns the view, with the mode if all stages have the same one.
export async function showPipeline(name, hours) {
  const path = `/pipelines/${encodeURIComponent(name)}`;
  const found = await Promise.all([read(path), read(`${path}/history?hours=${hours}&points=${MOST_POINTS}`)]);
  return () => {
    [view, past] = found;
    draw();
    find("#range").hidden = !view.queries;
    if (past && shown.past !== past) drawQueries(view, past);
    shown.past = past;
    const modes = new Set(view.stages.map((s) => s.mode));
    return { ...view, mode: modes.size === 1 ? view.stages[0].mode : "" };
  };
}

function draw() {
  const room = find("#graph").clientWidth;
  const way = view.drawing && view.drawing.across.width > room ? "down" : "across";
  if (shown.view === view && shown.way === way) return;
  shown = { ...shown, view, way };
  figures();
  const troubles = view.stages.flatMap((s) => s.troubles.map((text) => `${s.stage}: ${text}`));
  find("#pipeline-troubles").hidden = !troubles.length;
  find("#pipeline-troubles").replaceChildren(...troubles.map((text) => h("li", {}, text)));
  find("#promise").textContent = promise();
  find("#graph").replaceChildren(view.drawing ? graph(view.drawing[way]) : driven());
  find("#stages").replaceChildren(...view.stages.map(row));
  queries();
  promises();
}

function queries() {
  const own = view.queries;
  find("#queries").hidden = !own;
  if (!own) return;
  const ms = (value) => (value === null ? NONE : `${rate(value)} ms`);
  const words = {
    asked: own.per_s === null ? "no conductor has answered yet" : `${rate(own.per_s)} a second, of the last minute`,
    in_time: percent(own.recent),
    promised: `${percent(view.target)} within ${ms(view.rt_max_ms)}`,
    p50: ms(own.recent_p50_ms),
    p99: ms(own.recent_p99_ms),
    mean: ms(own.recent_ms),
  };
  for (const [name, text] of Object.entries(words)) find(`[data-pipeline=${name}]`).textContent = text;
  find("[data-pipeline=in_time]").className = own.recent !== null && own.recent < view.target ? "bad" : "";
  find("[data-pipeline=p99]").className = own.recent_p99_ms > view.rt_max_ms ? "bad" : "";
}

// The costs of other promises, which mark plan calls alternatives.
function promises() {
  const own = view.promise;
  const line = (name, rt_max_ms, price, more) =>
    h("tr", {}, h("th", { scope: "row" }, `${name}within ${exact(rt_max_ms)} ms`), h("td", {}, price === null ? "not possible" : usd(price)),
      h("td", {}, more));
  const difference = (one) => {
    const more = one.difference_usd_per_hour;
    return more === null ? NONE : Math.abs(more) < 1e-6 ? "the same" : signedUsd(more);
  };
  const others = own ? own.other_slos : [];
  const told = others.map((one) => line(one.rt_max_ms < view.rt_max_ms ? "10 ms less: " : "10 ms more: ", one.rt_max_ms, one.usd_per_hour, difference(one)));
  if (own) told.splice(told.length - 1, 0, line("as promised: ", view.rt_max_ms, own.usd_per_hour, ""));
  find("#promises").replaceChildren(...told);
  const load = own && own.rps !== null ? `${rate(own.rps)} queries/s` : "the calls that stages get";
  const follow = view.driver ? ` Its stages are taken to follow each other in the file's order, because the order of the calls of ${view.driver} is not known here.` : "";
  find("[data-pipeline=estimate]").textContent = own
    ? `An estimate for the load now, ${load}, from profiles and prices and without a plan: whole instances of one type for each stage, none in reserve, and RT_max parted over the stages as is cheapest. What runs keeps the parts of its file.${follow}`
    : "No load is known yet.";
}

function figures() {
  const { bottleneck: limit, driver } = view;
  const calls = view.stages.reduce((sum, s) => sum + (s.rps ?? 0), 0);
  const words = {
    queries: rate(view.queries_per_s),
    calls: `${rate(calls)} calls/s of all stages${driver ? `; how many a query makes, ${driver} decides` : ""}`,
    usd_per_hour: usd(view.usd_per_hour),
    instances: `${plural(view.instances, "instance")}, ${usd(view.usd_so_far)} so far`,
    per_million: usd(view.usd_per_million_queries_now),
    one_more: usd(million(view.usd_per_query)),
    bottleneck: limit ? limit.stage : NONE,
    why: limit ? why(limit) : "no load is known yet",
  };
  for (const [name, text] of Object.entries(words)) find(`[data-pipeline=${name}]`).textContent = text;
  find("[data-pipeline=bottleneck]").className = limit && limit.why === "misses" ? "bad" : "";
}

const million = (usdOfOne) => (usdOfOne === null ? null : usdOfOne * 1e6);
const why = (limit) =>
  [
    limit.why === "misses" ? "too few of its calls are in time" : "the stage whose ready capacity is used most",
    ...(limit.headroom === null ? [] : [`ready instances carry ${rate(limit.headroom)} times this load`]),
  ].join("; ");

function promise() {
  const parts = view.longest_path_ms === null ? "" : ` The parts of the stages on the longest path: ${rate(view.longest_path_ms)} ms.`;
  return `${percent(view.target)} within ${rate(view.rt_max_ms)} ms promised.${parts}`;
}

// The lines of a stage's box: latency and its part of RT_max; visits; dollars; load; share in time.
const took = (s) => `${s.slo.recent_ms === null ? "" : `${rate(s.slo.recent_ms)} of `}${rate(s.slo.rt_max_ms)} ms`;
const visits = (calls) =>
  calls === 1 ? "every query" : calls < 1 ? `${percent(calls, 0)} of queries` : `${rate(calls)} calls a query`;
const lines = (s) => [
  took(s),
  ...(s.calls_per_query === null ? [] : [visits(s.calls_per_query)]),
  `${usd(s.usd_per_hour)}/h, ${percent(s.dollar_share, 0)}`,
  `${rate(s.rps)}/s, ${percent(s.used, 0)} used`,
  `${percent(s.slo.recent)} in time`,
];
const limits = (s) => view.bottleneck !== null && view.bottleneck.stage === s.stage;
const missed = (s) => s.slo.recent !== null && s.slo.recent < s.slo.target;
const page = (s) => `#/${encodeURIComponent(s.service)}`;
const said = (s) => [s.stage, ...(limits(s) ? [MARK] : []), ...lines(s)].join(", ");
const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

// Draws the graph like mark/studies/report/graph_svg.py; the controller sends the positions.
function graph(at) {
  const order = view.stages.map((s) => `${s.stage} after ${s.after.join(", ") || "the query"}`).join("; ");
  const end = ([x, y], word) => [
    svg("rect", { class: "end", x, y, width: at.end_width, height: at.end_height, rx: 15 }),
    svg("text", { x: x + at.end_width / 2, y: y + 20, "text-anchor": "middle" }, word),
  ];
  return svg("svg", { class: "graph", viewBox: `0 0 ${at.width} ${at.height}`, width: at.width, role: "group", "aria-label": order },
    svg("g", { class: "edges", "aria-hidden": "true" }, ...at.lines.map((d) => svg("path", { d }))),
    svg("g", { "aria-hidden": "true" }, ...end(at.query, "query"), ...end(at.answer, "answer")),
    ...view.stages.map((s, place) => box(s, at.boxes[place], at)));
}

function box(s, [x, y], at) {
  const most = Math.floor((at.box_width - 2 * PADDING) / 6.2), marked = limits(s), told = lines(s);
  const first = y + at.box_height + 3 - LINE * told.length; // baseline of the first line, below the name
  const pill = 7 * MARK.length + 14, right = x + at.box_width - PADDING;
  return svg("a", { class: marked ? "box marked" : "box", href: page(s), "aria-label": said(s) },
    svg("title", {}, [s.stage, ...told].join(" · ")),
    svg("rect", { x, y, width: at.box_width, height: at.box_height, rx: 8 }),
    svg("text", { class: "name", x: x + PADDING, y: first - 19 }, cut(s.stage, Math.floor(most * 0.8))),
    ...told.map((line, n) =>
      svg("text", { class: n === told.length - 1 && missed(s) ? "late" : null, x: x + PADDING, y: first + LINE * n }, cut(line, most))),
    ...(marked ? [
      svg("rect", { class: "mark", x: right - pill, y: y - 9, width: pill, height: 18, rx: 9 }),
      svg("text", { class: "mark", x: right - pill / 2, y: y + 4, "text-anchor": "middle" }, MARK),
    ] : []));
}

// With a driver there is no graph to draw, because only the driver knows the order of the stages.
function driven() {
  const card = (s) => h("a", { class: limits(s) ? "box marked" : "box", href: page(s), "aria-label": said(s) },
    h("b", {}, s.stage), limits(s) ? h("span", { class: "mark" }, MARK) : null,
    ...lines(s).map((line, n, all) => h("span", { class: n === all.length - 1 && missed(s) ? "late" : null }, line)));
  return h("div", { class: "driven" },
    h("p", {}, `${view.driver} decides which stages a query visits, and in which order; mark pipeline trace draws them.`),
    h("div", {}, ...view.stages.map(card)));
}

function row(s) {
  const fleet = s.running.map((kind) => `${kind.count} × ${kind.instance} ${kind.market}`).join(", ");
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: page(s) }, s.stage), limits(s) ? h("small", { class: "bad" }, ` ${MARK}`) : null,
      s.mode === "acting" ? null : h("small", {}, ` ${s.mode}`)),
    h("td", {}, s.after === null ? NONE : waits(s)),
    h("td", {}, rate(s.rps)),
    h("td", {}, percent(s.used, 0)),
    h("td", {}, rate(s.slo.rt_max_ms)),
    h("td", {}, rate(s.slo.recent_ms)),
    h("td", {}, rate(s.slo.recent_p50_ms)),
    h("td", {}, rate(s.slo.recent_p99_ms)),
    h("td", { class: missed(s) ? "bad" : "" }, percent(s.slo.recent)),
    h("td", {}, percent(s.overflow_share, 1)),
    h("td", {}, usd(s.usd_per_hour)),
    h("td", {}, percent(s.dollar_share, 0)),
    h("td", {}, usd(million(s.usd_per_request))),
    h("td", {}, fleet || "none"));
}

function waits(s) {
  const join = s.join && s.join.deadline_ms !== null ? `, ${rate(s.join.deadline_ms)} ms after ${s.join.least} at the latest` : "";
  return (s.after.join(", ") || "the query") + join;
}

addEventListener("resize", () => { if (view && !find("#pipeline").hidden) draw(); });
