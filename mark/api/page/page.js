// The page: finds the user's scopes and the wanted service, and asks the controller again every two seconds.

import { hasKey, read, Refused, useKey } from "./door.js";
import { find, h } from "./dom.js";
import { NONE, budget, clock, percent, plural, rate, usd } from "./format.js";
import { showPipeline } from "./pipeline.js";
import { allow, showService } from "./service.js";
import { toldAt } from "./time.js";

const EVERY_MS = 2000;
const PARTS = ["#one", "#pipeline", "#all"];
let hours = 6;
let me = null;
let round = 0; // answers to an earlier round are dropped
let timer;

const wanted = () => decodeURIComponent(location.hash.replace(/^#\/?/, ""));

async function refresh() {
  const mine = ++round;
  clearTimeout(timer);
  try {
    if (me === null) {
      me = await read("/me");
      allow(me.scopes.includes("admin"));
    }
    const { services, pipelines: names } = await read("/services");
    const only = services.length === 1 && !names.length ? services[0].service : "";
    const name = wanted() || only;
    const what = services.some((s) => s.service === name) ? "#one" : names.includes(name) ? "#pipeline" : "#all";
    const show = what === "#one" ? await showService(name, hours) : what === "#pipeline" ? await showPipeline(name, hours) : null;
    const { pipelines } = what === "#all" && names.length ? await read("/pipelines") : { pipelines: [] };
    if (mine !== round) return;
    const began = performance.now();
    header(services, names, name);
    // Show the part before drawing it, because charts need their width.
    for (const part of PARTS) find(part).hidden = part !== what;
    const view = show ? mode(show()) : list(services, pipelines);
    find("#door").hidden = true;
    find("#leave").hidden = !hasKey();
    answered(view);
    find(what).offsetHeight; // forces the layout, so that `renderMs` includes it
    document.documentElement.dataset.renderMs = (performance.now() - began).toFixed(1);
  } catch (error) {
    if (mine === round) failed(error);
  }
  if (mine === round && !document.hidden && find("#door").hidden) timer = setTimeout(refresh, EVERY_MS);
}

// Shows the service's clock, by which all times on the page are told; a testbed may let it run faster.
function answered(view) {
  const hurried = Boolean(view) && view.time_scale !== 1;
  find("#lost").hidden = true;
  find("#live").className = "on";
  find("#live span").textContent = clock(hurried ? toldAt(view, Date.now() / 1e3) : Date.now() / 1e3, true);
  find("#scale").hidden = !hurried;
  if (hurried) find("#scale").textContent = `controller's clock, ${rate(view.time_scale)} × real time`;
}

function failed(error) {
  find("#live").className = "";
  if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
    find("#door .error").textContent = hasKey() ? (error.status === 401 ? "This key is not known here." : error.message) : "";
    me = null;
    useKey(null);
    for (const part of [...PARTS, "#switch", "#mode", "#scale", "#since", "#range", "#leave", "#lost"]) find(part).hidden = true;
    find("#door").hidden = false;
    find("#key").focus();
    return;
  }
  const why = error instanceof Refused ? `The controller says: ${error.message}.` : "The controller does not answer.";
  find("#lost").textContent = `${why} The page shows the state of the time above; asking again.`;
  find("#lost").hidden = false;
}

function header(services, pipelines, name) {
  const box = find("#switch");
  const names = ["", ...pipelines, ...services.map((s) => s.service)];
  if (box.length !== names.length) {
    box.replaceChildren(...names.map((n) => h("option", { value: n }, n || "all services")));
  }
  box.value = name;
  box.hidden = names.length < 3;
  const service = services.some((s) => s.service === name);
  find("#mode").hidden = find("#since").hidden = !service;
  find("#range").hidden = !service && !pipelines.includes(name);
  for (const button of find("#range").children) button.ariaPressed = String(Number(button.dataset.hours) === hours);
  document.title = name ? `${name} · mark` : "mark";
}

function badge(element, mode) {
  element.textContent = mode;
  element.className = `badge ${mode.replace(" ", "-")}`;
  return element;
}

function mode(view) {
  find("#mode").hidden = !view.mode;
  badge(find("#mode"), view.mode);
  return view;
}

function list(services, pipelines) {
  const part = find("#find").value.toLowerCase();
  const matches = (name) => name.toLowerCase().includes(part);
  const byName = new Map(services.map((s) => [s.service, s]));
  const groups = pipelines.map((p) => ({ name: p.pipeline, pipeline: p, stages: p.services.map((s) => byName.get(s)) }));
  for (const { stages } of groups) stages.forEach((s) => byName.delete(s.service));
  groups.push(...[...byName.values()].map((s) => ({ name: s.service, pipeline: null, stages: [s] })));
  const found = groups.filter((g) => matches(g.name) || g.stages.some((s) => matches(s.service)));
  const troubles = (g) => g.stages.reduce((sum, s) => sum + s.troubles.length, 0);
  found.sort((a, b) => troubles(b) - troubles(a) || a.name.localeCompare(b.name, "en", { numeric: true }));
  const total = services.reduce((sum, s) => sum + s.usd_per_hour, 0);
  const running = services.reduce((sum, s) => sum + s.instances, 0);
  const both = pipelines.length ? `${plural(pipelines.length, "pipeline")}, ` : "";
  find("#sum").textContent = `${both}${plural(services.length, "service")}, ${plural(running, "instance")}, ${usd(total)}/h.`;
  const told = found.flatMap((g) => [
    ...(g.pipeline ? [row(g.name, g.pipeline, whole)] : []),
    ...g.stages.map((s) => row(s.service, s, cells, g.pipeline ? "stage" : "")),
  ]);
  const box = find("#list");
  if (told.length !== box.children.length || told.some((one, i) => one !== box.children[i])) box.replaceChildren(...told);
}

const made = new Map(); // name -> {said, element}: keeps rows that have not changed

function row(name, own, write, style = "") {
  const said = JSON.stringify(own);
  const last = made.get(name) ?? { element: h("tr", { class: style || null }) };
  if (last.said !== said) last.element.replaceChildren(...write(own));
  made.set(name, { said, element: last.element });
  return last.element;
}

function whole(p) {
  const limit = p.bottleneck ? h("small", {}, `bottleneck: ${p.bottleneck.stage}`) : null;
  return [
    h("td", {}, h("a", { href: `#/${encodeURIComponent(p.pipeline)}` }, h("b", {}, p.pipeline)), limit),
    h("td", {}, "pipeline"),
    h("td", {}, rate(p.queries_per_s)),
    h("td", {}, p.bottleneck && p.bottleneck.headroom ? percent(1 / p.bottleneck.headroom, 0) : NONE),
    h("td", {}, String(p.instances)),
    h("td", {}, usd(p.usd_per_hour)),
    h("td", {}),
    h("td", {}),
  ];
}

function cells(s) {
  const missed = s.slo.recent !== null && s.slo.recent < s.slo.target;
  const left = s.slo.error_budget_left;
  const troubles = s.troubles.map((text) => h("small", { class: "poor" }, text));
  return [
    h("td", {}, h("a", { href: `#/${encodeURIComponent(s.service)}` }, s.service), ...troubles),
    h("td", {}, badge(h("span"), s.mode)),
    h("td", {}, rate(s.rps)),
    h("td", {}, s.rps !== null && s.capacity_rps > 0 ? percent(s.rps / s.capacity_rps, 0) : NONE),
    h("td", {}, String(s.instances)),
    h("td", {}, usd(s.usd_per_hour)),
    h("td", { class: missed ? "bad" : "" }, percent(s.slo.recent)),
    h("td", { class: left !== null && left < 0 ? "bad" : "" }, budget(left).join(" ")),
  ];
}

find("#door").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(find("#key").value.trim());
  find("#key").value = "";
  find("#door").hidden = true;
  refresh();
});
find("#leave").addEventListener("click", () => {
  useKey(null);
  location.reload();
});
find("#switch").addEventListener("change", () => { location.hash = `#/${encodeURIComponent(find("#switch").value)}`; });
find("#find").addEventListener("input", refresh);
find("#range").addEventListener("click", (event) => {
  if (!event.target.dataset.hours) return;
  hours = Number(event.target.dataset.hours);
  refresh();
});
addEventListener("hashchange", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
refresh();
