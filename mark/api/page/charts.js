// The charts of a service or a pipeline, from its history and its view.

import { Chart } from "./chart.js";
import { colour, find, h, swatch } from "./dom.js";
import { duration, percent, rate, usd } from "./format.js";
import { told, toldAt } from "./time.js";

const charts = new Map();

export function drawCharts(view, past_, hours) {
  const history = told(view, past_, "start_unix_s"), { step_s: step } = history;
  const now = Math.max(toldAt(view, view.at_unix_s), history.start_unix_s + step * history.rps.length);
  // Begin with the first known value, because a young service has less history than the page asks for.
  const first = history.usd_per_hour.findIndex((usdPerHour) => usdPerHour !== null);
  const from = Math.min(first < 0 ? now : history.start_unix_s + step * first, now - 600);
  find("#since").textContent = first > 0 ? `${duration(now - from)} so far` : "";
  const past = (style, values, more) => ({
    kind: "line", style, start: history.start_unix_s, step: history.step_s, values, ...more,
  });
  const frame = { from, to: now, now };
  draw("load", { ...frame, ...load({ ...view, forecast: told(view, view.forecast, "origin_unix_s") }, history, past, now, hours) });
  draw("fleet", { ...frame, ...fleet(history, past) });
  draw("cost", {
    ...frame,
    write: usd,
    layers: [
      past("cost", history.usd_per_hour, { kind: "steps", low: zeros(history.usd_per_hour) }),
      past("cost", history.usd_per_hour, { kind: "step", name: "$/h" }),
    ],
  });
  draw("slo", { ...frame, ...slo(view, history, past) });
  draw("overflow", {
    ...frame,
    write: (share) => percent(share),
    most: Math.max(0.01, ...history.overflow_share) * 1.06,
    layers: [
      past("overflow", history.overflow_share, { kind: "band", low: zeros(history.overflow_share) }),
      past("overflow", history.overflow_share, { name: "by functions", says: (i) => percent(history.overflow_share[i], 2) }),
    ],
  });
}

// The whole queries of a pipeline, from their history.
export function drawQueries(view, past_) {
  const history = told(view, past_, "start_unix_s"), { step_s: step, start_unix_s: start } = history;
  const to = Math.max(toldAt(view, view.at_unix_s), start + step * history.per_s.length);
  const first = history.per_s.findIndex((perS) => perS !== null);
  const frame = { from: Math.min(first < 0 ? to : start + step * first, to - 600), to, now: to };
  const past = (style, values, more) => ({ kind: "line", style, start, step, values, ...more });
  draw("latency", {
    ...frame,
    write: rate,
    legend: [["p50", "median"], ["p99", "p99"], ["promise", "promised"]],
    layers: [
      past("promise", history.p99_ms.map(() => view.rt_max_ms)),
      past("p50", history.p50_ms, { name: "median", says: (i) => `${rate(history.p50_ms[i])} ms` }),
      past("p99", history.p99_ms, { name: "p99", says: (i) => `${rate(history.p99_ms[i])} ms` }),
    ],
  });
  draw("queries", { ...frame, ...slo({ slo: view }, history, past) });
}

const zeros = (values) => values.map(() => 0);

function draw(name, shown) {
  const host = find(`[data-chart=${name}]`);
  if (!charts.has(name)) charts.set(name, new Chart(host));
  charts.get(name).draw(shown);
  const legend = find(".legend", host.parentElement);
  legend?.replaceChildren(...(shown.legend ?? []).map(([style, words]) => h("span", {}, swatch(style), words)));
}

function load(view, history, past, now, hours) {
  const { forecast, plan } = view;
  const layers = [], legend = [["rps", "arrived"], ["capacity", "capacity"]];
  let to = now;
  if (forecast) {
    const ahead = { start: forecast.origin_unix_s, step: forecast.step_s };
    const steps = Math.min(forecast.rps[0].length, Math.ceil((hours * 1800) / forecast.step_s));
    const rows = forecast.rps.map((row) => row.slice(0, steps)), last = rows.length - 1;
    for (let i = 0; i < last - i; i += 1) {
      layers.push({ kind: "band", style: i ? "fan inner" : "fan", ...ahead, values: rows[last - i], low: rows[i] });
    }
    const middle = forecast.levels.findIndex((level) => level >= 0.5);
    layers.push({
      kind: "line", style: "believed", ...ahead, values: rows[middle], name: "believed",
      says: (i) => `${rate(rows[middle][i])} (${rate(rows[0][i])} – ${rate(rows[last][i])})`,
    });
    to = Math.max(now, ahead.start + steps * ahead.step);
    const share = Math.round((forecast.levels[last] - forecast.levels[0]) * 100);
    legend.push(["believed", `forecast, ${share} % within`]);
  }
  if (plan && to > now) {
    layers.push({ kind: "step", style: "planned", start: now, step: to - now, values: [plan.capacity_rps], name: "planned" });
    legend.push(["planned", "capacity planned"]);
  }
  layers.push(
    past("capacity", history.capacity_rps, { kind: "step", name: "capacity" }),
    past("rps", history.rps, { kind: "band", low: zeros(history.rps) }),
    past("rps", history.rps, { name: "arrived" }),
  );
  return { to, write: rate, legend, layers };
}

function fleet(history, past) {
  let low = zeros(history.rps);
  const layers = [], legend = [];
  Object.keys(history.instances).sort().forEach((offer, place) => {
    const counts = history.instances[offer];
    const values = counts.map((n, i) => (n === null ? null : low[i] + n));
    layers.push(past(colour(place), values, { kind: "steps", low, name: offer, says: (i) => counts[i] || null }));
    legend.push([colour(place), offer]);
    low = values.map((v) => v ?? 0);
  });
  return { layers, legend, write: (n) => (Number.isInteger(n) ? String(n) : "") };
}

function slo(view, history, past) {
  const { target } = view.slo;
  const lowest = Math.min(target, ...history.attainment.filter((v) => v !== null));
  return {
    least: Math.max(0, 1 - (1 - lowest) * 1.25),
    most: 1,
    write: (share) => percent(share, 1 - lowest < 0.03 ? 1 : 0),
    legend: [["slo", "by step"], ["promise", "promised"]],
    layers: [
      past("promise", history.attainment.map(() => target)),
      past("slo", history.attainment, { name: "in time", says: (i) => percent(history.attainment[i], 2) }),
    ],
  };
}
