// One service: figures, plan, bill, decisions, instances, limits.

import { change, of, read } from "./door.js";
import { colour, find, h, swatch } from "./dom.js";
import { NONE, budget, clock, count, duration, exact, percent, plural, rate, signedUsd, usd } from "./format.js";
import { drawCharts } from "./charts.js";
import { toldAt } from "./time.js";

const MOST_ROWS = 100, PAGE = 40, MOST_POINTS = 480;
const NO_SHARE = 5e-4; // a smaller share of requests without room would be shown as 0.0 %
const MARKETS = [
  ["on_demand", "on-demand"], ["spot", "spot"], ["burstable", "burstable"], ["functions", "functions"],
  ["sagemaker", "SageMaker"], ["other", "other: balancer, disks, logs"],
];
let shown = {}; // part -> the data from which it was last drawn
let older = []; // decisions beyond the first page, which the user asked for

// Draws the parts whose data changed. Returns the view.
export async function showService(service, hours) {
  const path = of(service);
  const [view, fleet, decisions, history] = await Promise.all([
    read(path),
    read(`${path}/fleet?count=${MOST_ROWS}`),
    read(`${path}/decisions?count=${PAGE}`),
    read(`${path}/history?hours=${hours}&points=${MOST_POINTS}`),
  ]);
  if (shown.service !== service) {
    shown = { service };
    older = [];
    find("#limits .said").textContent = "";
    find("#limits").reset();
  }
  return () => {
    if (changed("view", view)) {
      figures(view);
      plan(view.plan);
      bill(view.bill);
      nextDay(view.next_day);
      prices(view.prices);
      limits(view);
    }
    if (changed("fleet", fleet)) instances(fleet);
    if (changed("decisions", decisions)) log(decisions);
    if (changed("view of charts", view) | changed("history", history)) drawCharts(view, history, hours);
    return view;
  };
}

function changed(part, now) {
  const before = shown[part];
  shown[part] = now;
  return before !== now;
}

function figures(view) {
  const { slo, bill } = view;
  const [left, word] = budget(slo.error_budget_left);
  const used = view.rps !== null && view.capacity_rps > 0 ? ` · ${percent(view.rps / view.capacity_rps, 0)} used` : "";
  const words = {
    rps: rate(view.rps),
    used: `capacity ${rate(view.capacity_rps)}/s${used}`,
    usd_per_hour: usd(view.usd_per_hour),
    within: `${view.instances} of at most ${plural(view.limits.max_instances, "instance")}`,
    per_million: usd(bill.usd_per_million_requests_now),
    per_million_all: `${usd(bill.usd_per_million_requests)} since the start`,
    recent: percent(slo.recent),
    promise: `${percent(slo.target)} within ${slo.rt_max_ms} ms promised, as servers see it`,
    budget: left,
    budget_word: word,
    attainment: `${percent(slo.attainment, 2)} of all requests since the start`,
  };
  for (const [name, text] of Object.entries(words)) find(`[data-now=${name}]`).textContent = text;
  const share = slo.error_budget_left ?? 1;
  find(".gauge i").style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  grade(find(".gauge"), share < 0.25 ? (share < 0 ? "bad" : "poor") : "good");
  grade(find("[data-now=recent]"), slo.recent !== null && slo.recent < slo.target ? "bad" : "");
  grade(find("[data-now=budget]"), share < 0 ? "bad" : "");
  find("#troubles").hidden = !view.troubles.length;
  find("#troubles").replaceChildren(...view.troubles.map((text) => h("li", {}, text)));
  rollout(view.rollout);
}

const STAGES = {
  done: "serves",
  canary: "is tried on canaries",
  rolling: "takes its place",
  stopped: "was taken back",
};

function rollout(own) {
  find("#rollout").hidden = !own;
  if (!own) return;
  const newest = own.stage === "canary" || own.stage === "stopped" ? own.wanted : own.release;
  const counts = Object.entries(own.instances).map(([name, n]) => `${n} of ${name || "one without a name"}`);
  find("#rollout").textContent = `Release ${newest} ${STAGES[own.stage]}. Instances: ${counts.join(", ") || "none"}.`;
}

function grade(element, grade) {
  element.classList.remove("good", "poor", "bad");
  if (grade) element.classList.add(grade);
}

function plan(own) {
  if (!own) {
    find("#plan").replaceChildren(h("p", { class: "lead" }, "No plan yet."));
    return;
  }
  const line = (t, standby) =>
    h("li", {},
      h("div", {}, h("b", {}, standby ? `${t.count} × ${t.offer}, stopped` : `${t.count} × ${t.offer}`),
        h("span", {}, t.usd_per_hour === null ? "" : `${usd(t.usd_per_hour)}/h`)),
      h("p", {}, t.reason),
      t.have === t.count ? null
        : h("small", {}, `${t.have} there now${t.spare ? `, ${t.spare} only until the rest is ready` : ""}`));
  const more = [
    `Holds ${rate(own.capacity_rps)} requests/s`,
    ...(own.warm ? [`${plural(own.warm, "function environment")} warm`] : []),
    ...(own.predictor ? [`forecast by ${own.predictor}`] : []),
    ...(own.solver ? [`solved by ${own.solver}`] : []),
    `planned ${duration(own.age_s)} before this was shown`,
  ];
  find("#plan").replaceChildren(
    h("ul", { class: "wanted" }, ...own.targets.map((t) => line(t, false)), ...own.standbys.map((t) => line(t, true))),
    ...own.notes.map((note) => h("p", { class: "lead" }, note)),
    h("p", { class: "facts" }, `${more.join(" · ")}.`),
  );
}

function bill(own) {
  const parts = MARKETS.map(([key, name], place) => ({ name, style: colour(place), usd: own[key] })).filter((p) => p.usd > 0);
  const bar = h("div", { class: "bar" }, ...parts.map((p) => h("i", { class: p.style, title: p.name })));
  parts.forEach((p, i) => { bar.children[i].style.flexGrow = p.usd / own.total; });
  find("#bill").replaceChildren(
    h("p", { class: "big" }, h("b", { "data-now": "total" }, usd(own.total)), h("small", {}, ` for ${count(own.requests)} requests`)),
    bar,
    h("table", {}, h("tbody", {}, ...parts.map((p) =>
      h("tr", {}, h("th", {}, swatch(p.style), p.name), h("td", {}, usd(p.usd)), h("td", {}, percent(p.usd / own.total, 0)))))),
  );
}

function nextDay(own) {
  find("#next-day").hidden = !own;
  if (!own) return;
  const [low, high] = own.interval_90;
  const kept = own.promise_kept === null ? "" : `; the promise is kept with a probability of ${percent(own.promise_kept, 0)}`;
  const known = own.calibrated ? "" : " (not calibrated on your traffic)";
  find("#next-day").textContent =
    `Next day: ${usd(own.expected_usd)}, nine times out of ten between ${usd(low)} and ${usd(high)}${known}${kept}.`;
}

// The prices of a request, of a miss and of other promises, worded like mark plan.
function prices({ usd_per_request: one, usd_per_miss: miss, promise }) {
  const lines = [];
  if (one !== null && miss) {
    const free = one / miss < NO_SHARE;
    lines.push(free ? "A request: nothing now: ready capacity has room for it."
      : `A request: ${usd(one * 1e6)} a million: ${percent(one / miss)} of them would find no room.`);
  }
  if (miss !== null) lines.push(`A miss: ${usd(miss * 1e6)} a million.`);
  if (promise) {
    const others = promise.other_slos.map((other) => {
      const more = other.difference_usd_per_hour, within = `within ${exact(other.rt_max_ms)} ms`;
      if (other.usd_per_hour === null) return `${within} not possible`;
      if (more === null) return `${within} ${usd(other.usd_per_hour)}/h`;
      return Math.abs(more) < 1e-6 ? `${within} the same` : `${within} ${usd(Math.abs(more))}/h ${more > 0 ? "more" : "less"}`;
    });
    const perMs = promise.usd_per_hour_per_ms === null ? "" : `${usd(promise.usd_per_hour_per_ms)}/h; `;
    lines.push(`A millisecond of RT_max: ${perMs}${others.join(", ")}.`);
  }
  find("#prices").replaceChildren(...(lines.length ? lines : ["Nothing is known yet."]).map((text) => h("li", {}, text)));
}

function log(first) {
  const known = new Map([...older, ...first.decisions].map((d) => [d.id, d]));
  older = [...known.values()].sort((a, b) => b.id - a.id);
  if (first.decisions.length < 1) older = [];
  find("#older").hidden = !older.length || older.at(-1).id <= 1;
  let day = "";
  const rows = older.flatMap((d) => {
    const at = toldAt(shown.view, d.at_unix_s);
    const on = new Date(at * 1e3).toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long" });
    const head = on === day ? [] : [h("li", { class: "day" }, on)];
    day = on;
    const cost = h("span", { class: d.usd_per_hour < 0 ? "money less" : "money" }, d.usd_per_hour ? `${signedUsd(d.usd_per_hour)}/h` : "");
    const outcome = d.outcome === "done" ? null : h("em", {}, d.outcome);
    return [...head, h("li", { class: `verb-${d.verb}` }, h("time", {}, clock(at, true)), h("p", {}, sentence(d), outcome), cost)];
  });
  find("#decisions").replaceChildren(...(rows.length ? rows : [h("li", { class: "day" }, "Nothing was decided yet.")]));
}

// "launch 2 c5.large, +0.17 $/h: why" as a sentence; the money stands beside it.
function sentence(d) {
  const text = d.text.replace(/, [+-]\d+\.\d+ \$\/h(?=: )/, "").trim();
  const full = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(full) ? full : `${full}.`;
}

find("#older").addEventListener("click", async () => {
  const { service, decisions } = shown;
  const page = await read(`${of(service)}/decisions?count=${PAGE}&before=${older.at(-1).id}`);
  if (service !== shown.service) return;
  older.push(...page.decisions);
  log(decisions);
  if (page.next_before === null) find("#older").hidden = true;
});

function instances(fleet) {
  const rest = fleet.total - fleet.instances.length;
  find("#count").textContent = rest > 0 ? `the first ${fleet.instances.length} of ${fleet.total}` : plural(fleet.total, "instance");
  const row = (i) => {
    const remarks = [
      ...(i.gone_in_s === null ? [] : [`taken away by the cloud in ${duration(i.gone_in_s)}`]),
      ...(i.ready_in_s === null ? [] : [`ready in ${duration(i.ready_in_s)}`]),
      ...(i.standby ? ["standby"] : []),
      ...(i.credits === null ? [] : [`${Math.round(i.credits)} credits`]),
    ];
    return h("tr", {}, h("td", {}, String(i.number)), h("td", {}, i.offer),
      h("td", {}, h("span", { class: `phase ${i.gone_in_s === null ? i.phase : "doomed"}` }, i.phase)),
      h("td", {}, duration(i.age_s)), h("td", {}, i.usd_per_hour === null ? NONE : usd(i.usd_per_hour)), h("td", {}, remarks.join(", ")));
  };
  find("#instances").replaceChildren(...fleet.instances.map(row));
}

// -- changing ---------------------------------------------------------------------------------------------------------

const form = find("#limits");
let touched = false;
form.addEventListener("input", () => { touched = true; });
form.addEventListener("reset", () => { touched = false; });

function limits(view) {
  const paused = view.mode === "paused";
  find("#pause").textContent = paused ? "Resume" : "Pause";
  find("#pause").title = paused ? "act again" : "buy and end nothing until resumed";
  if (touched) return; // the user is editing the fields
  for (const name of ["max_instances", "max_usd_per_hour"]) form.elements[name].value = view.limits[name];
}

export function allow(changes) {
  find("#may").hidden = changes;
  for (const control of form.elements) control.disabled = !changes;
  find("#pause").hidden = !changes;
  find("#limits .primary").hidden = !changes;
}

async function tell(method, path, body, said) {
  const line = find(".said", form);
  try {
    await change(method, `${of(shown.service)}${path}`, body);
    line.textContent = said;
    grade(line, "good");
    touched = false;
  } catch (error) {
    line.textContent = error.message;
    grade(line, "bad");
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const number = (name) => form.elements[name].valueAsNumber;
  tell("PUT", "/limits", { max_instances: number("max_instances"), max_usd_per_hour: number("max_usd_per_hour") }, "Set.");
});
find("#pause").addEventListener("click", () => {
  const paused = find("#pause").textContent === "Resume";
  tell("POST", paused ? "/resume" : "/pause", null, paused ? "It acts again." : "Paused: nothing is bought or ended.");
});
