// The live numbers: one event stream, one panel.

import { element, clock, duration, timeOfDay } from "/dom.js";

const by = (id) => document.getElementById(id);
// Two minutes of samples at two a second.
const SAMPLES = 240;
const EVENTS = 40;
const lags = [];
const events = [];

/** Follows the server's stream for as long as the page is open; the browser reconnects by itself. */
export function follow({ status, connection }) {
  const stream = new EventSource("/api/v1/stream");
  stream.addEventListener("open", () => connection(true));
  stream.addEventListener("error", () => connection(false));
  stream.addEventListener("status", (event) => status(JSON.parse(event.data)));
  stream.addEventListener("happened", (event) => drawEvent(JSON.parse(event.data)));
}

export function drawPipeline(status) {
  const open = status.collections.filter((one) => !one.dropped_at);
  const documents = open.reduce((sum, one) => sum + one.documents, 0);
  const known = open.map((one) => one.freshness).filter((fresh) => fresh.lag_ms !== null);
  const slowest = known.sort((a, b) => b.lag_ms - a.lag_ms)[0];
  by("n-documents").textContent = documents.toLocaleString("en");
  by("n-rate").textContent = rate(status.rows_per_s);
  by("n-lag").textContent = duration(slowest?.lag_ms);
  by("n-safe").replaceChildren(clock(slowest?.safe_ts), element("small", {}, `${slowest?.safe_ts ?? ""}`));
  if (slowest) drawTrace(slowest.lag_ms);
  drawPartitions(open);
}

function rate(perSecond) {
  return perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond).toLocaleString("en");
}

function drawTrace(lag) {
  lags.push(lag);
  if (lags.length > SAMPLES) lags.shift();
  const top = Math.max(500, ...lags);
  const points = lags.map((value, index) => {
    const x = 240 - ((lags.length - 1 - index) * 240) / (SAMPLES - 1);
    return `${x.toFixed(1)},${(46 - (value / top) * 44).toFixed(1)}`;
  });
  const line = svg("polyline", { points: points.join(" ") });
  const first = points[0].split(",")[0];
  const area = svg("polygon", { points: `${first},48 ${points.join(" ")} 240,48` });
  by("trace").replaceChildren(area, line);
  by("trace-max").textContent = `max ${duration(Math.max(...lags))}`;
}

function svg(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function drawPartitions(collections) {
  const heads = ["", "epoch", "sequence", "lag"].map((text) => element("th", { scope: "col" }, text));
  const rows = collections.flatMap((one) => {
    const generation = one.generations.at(-1);
    const name = element("td", { title: `token ${generation?.token ?? ""}` }, one.name);
    const state = element("td", { colspan: 2 }, `schema ${generation?.schema_version ?? "–"}`);
    const complete = one.freshness.complete;
    const fresh = element("td", { class: complete ? "" : "bad" }, complete ? "complete" : "incomplete");
    return [element("tr", { class: "group" }, name, state, fresh), ...one.partitions.map(drawPartition)];
  });
  by("partitions").replaceChildren(element("table", {}, element("tr", {}, ...heads), ...rows));
}

function drawPartition(part) {
  const sequence = Number(part.sequence).toLocaleString("en");
  const cells = [part.name, `${part.epoch}`, sequence, duration(part.lag_ms)];
  return element("tr", { class: "part" }, ...cells.map((text) => element("td", {}, text)));
}

function drawEvent(event) {
  if (events.includes(event.number)) return;
  events.push(event.number);
  const kind = element("b", {}, event.kind.replaceAll("_", " "));
  const what = element("div", {}, kind, ` ${event.collection ?? ""} `);
  what.append(element("span", {}, event.detail));
  by("events").prepend(element("li", {}, element("time", {}, timeOfDay(event.at_ms)), what));
  while (by("events").children.length > EVENTS) by("events").lastElementChild.remove();
}
