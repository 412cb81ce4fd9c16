// The page: what is being asked, and the answers. Drawing is in hits.js, the live numbers in pipeline.js.

import { drawHits, present } from "/hits.js";
import { drawPipeline, follow } from "/pipeline.js";
import { element, clock, duration, plural } from "/dom.js";

const PAGE = 20;
// Answers are refreshed while rows change, but never more often than a person can read.
const REFRESH_MS = 1000;

const by = (id) => document.getElementById(id);
const address = new URLSearchParams(location.search);
const asked = {
  collection: address.get("collection") ?? "",
  q: address.get("q") ?? "",
  filters: new Map(),
  like: address.get("like"),
  sort: address.get("sort") ?? "",
  limit: PAGE,
  // Whether the keyboard goes to the first result once it is there.
  enter: false,
};
// Per collection, the fields whose values can be taken in at a glance.
const telling = new Map();
let status = null;
let answer = null;
let running = null;
let answeredAt = 0;
let answeredView = -1;

const collection = () => status?.collections.find((one) => one.name === asked.collection);

// ---- asking

function quoted(value) {
  if (typeof value === "number" || typeof value === "boolean") return `${value}`;
  return `'${`${value}`.replaceAll("'", "''")}'`;
}

/** Counts the values of every field once; few values over many documents make a facet. */
async function findTelling() {
  const one = collection();
  const schema = one.generations.at(-1)?.token;
  if (telling.get(one.name)?.schema === schema) return;
  const fields = one.fields.filter((field) => field.facetable && field.kind === "text");
  const facets = fields.map((field) => field.name).join(",");
  const wanted = new URLSearchParams({ collection: one.name, limit: 1, facets });
  const response = await fetch(`/api/v1/search?${wanted}`);
  const counted = response.ok ? (await response.json()).facets : [];
  const few = (facet) => facet.distinct > 1 && facet.distinct <= 100 && facet.distinct * 5 <= one.documents;
  telling.set(one.name, { schema, fields: counted.filter(few).map((facet) => facet.field) });
}

const tellingFields = () => telling.get(asked.collection)?.fields ?? [];

function parameters() {
  const wanted = new URLSearchParams({ collection: asked.collection, limit: asked.limit, highlight: true });
  if (asked.q.trim()) {
    wanted.set("q", asked.q);
    wanted.set("prefix", true);
  }
  if (asked.like) wanted.set("like", asked.like);
  const filter = [...asked.filters].map(([field, value]) => `${field} = ${quoted(value)}`).join(" and ");
  if (filter) wanted.set("filter", filter);
  if (asked.sort) wanted.set("sort", asked.sort);
  if (tellingFields().length) wanted.set("facets", tellingFields().join(","));
  return wanted;
}

async function ask({ quietly = false } = {}) {
  if (!collection()) return;
  running?.abort();
  const mine = (running = new AbortController());
  if (!quietly) by("hits").setAttribute("aria-busy", "true");
  remember();
  answeredView = collection().freshness.view;
  answeredAt = performance.now();
  try {
    await findTelling();
    const response = await fetch(`/api/v1/search?${parameters()}`, { signal: mine.signal });
    const body = await response.json();
    if (mine.signal.aborted) return;
    answer = response.ok ? body : { hits: [], facets: [], failure: body.error };
    draw();
  } catch (failure) {
    if (failure.name !== "AbortError" && !quietly) showFailure({ message: "the server does not answer" });
  } finally {
    if (running === mine) by("hits").removeAttribute("aria-busy");
  }
}

function remember() {
  const kept = new URLSearchParams();
  if (asked.collection) kept.set("collection", asked.collection);
  if (asked.q) kept.set("q", asked.q);
  if (asked.like) kept.set("like", asked.like);
  if (asked.sort) kept.set("sort", asked.sort);
  for (const [field, value] of asked.filters) kept.append("only", `${field}:${value}`);
  if (address.get("theme")) kept.set("theme", address.get("theme"));
  history.replaceState(null, "", `?${kept}`);
}

function change(what) {
  Object.assign(asked, { limit: PAGE }, what);
  ask();
}

// ---- drawing

function draw() {
  if (answer.failure) return showFailure(answer.failure);
  drawFacets();
  drawFreshness();
  drawLikeness();
  const shape = { name: asked.collection, fields: collection().fields, chips: tellingFields() };
  drawHits(by("hits"), answer.hits, shape, { like: showLike, query: asked.q });
  // Of a vector's neighbours only as many are counted as were asked for.
  by("more").hidden = answer.hits.length < asked.limit || (!asked.like && answer.total <= asked.limit);
  if (asked.enter) by("hits").querySelector(".hit")?.focus({ preventScroll: true });
  asked.enter = false;
  if (!answer.hits.length) {
    const nothing = "Nothing matches. Try fewer letters or another filter.";
    by("hits").replaceChildren(element("li", { class: "empty" }, nothing));
  }
}

function showFailure(failure) {
  const text = [failure.message, failure.hint].filter(Boolean).join(" — ");
  by("freshness").replaceChildren(element("span", { class: "bad" }, text));
  by("hits").replaceChildren();
  by("more").hidden = true;
}

function drawFreshness() {
  const fresh = answer.freshness;
  const state = fresh.complete
    ? element("span", { class: "ok" }, "complete")
    : element("span", { class: "bad" }, `incomplete: ${reasons(fresh)}`);
  const took = ` in ${(answer.took_us / 1000).toFixed(1)} ms`;
  const safe = element("b", {}, clock(fresh.safe_ts));
  by("freshness").replaceChildren(
    element("span", {}, element("b", {}, plural(answer.total, "result")), took),
    state,
    element("span", { title: `safe_ts ${fresh.safe_ts}` }, "safe_ts ", safe),
    element("span", {}, "lag ", element("b", {}, duration(fresh.lag_ms))),
  );
}

function reasons(fresh) {
  return fresh.incomplete.map((one) => one.reason.replaceAll("_", " ")).join(", ");
}

function drawFacets() {
  const useful = answer.facets.filter((facet) => asked.filters.has(facet.field) || facet.distinct > 1);
  by("facets").replaceChildren(...useful.map(drawFacet));
}

function drawFacet(facet) {
  const chosen = asked.filters.get(facet.field);
  const values = facet.values.map(({ value, count }) => {
    const on = `${value}` === `${chosen}`;
    const attributes = { class: "chip", type: "button", "aria-pressed": on };
    const small = element("small", {}, count.toLocaleString("en"));
    const chip = element("button", attributes, `${value}`, small);
    chip.addEventListener("click", () => {
      if (on) asked.filters.delete(facet.field);
      else asked.filters.set(facet.field, value);
      change({});
    });
    return chip;
  });
  const label = element("span", {}, facet.field);
  return element("div", { class: "facet", role: "group", "aria-label": facet.field }, label, ...values);
}

function drawLikeness() {
  by("likeness").hidden = !asked.like;
  if (!asked.like) return;
  const clear = element("button", { class: "act", type: "button" }, "Clear");
  clear.addEventListener("click", () => change({ like: null, likeTitle: null }));
  const title = asked.likeTitle ?? `document ${asked.like}`;
  const text = element("span", {}, "Nearest to ", element("b", {}, title), ", by vector");
  by("likeness").replaceChildren(text, clear);
}

function showLike(document) {
  const shown = present(document, { fields: collection().fields, chips: tellingFields() });
  const likeTitle = [shown.badge, shown.title].filter(Boolean).join(" ");
  change({ like: `${document.id}`, likeTitle, q: "", sort: "", enter: true });
  by("q").value = "";
  by("sort").value = "";
  scrollTo({ top: 0 });
}

function drawCollections() {
  const shown = status.collections.filter((one) => !one.dropped_at);
  const signature = shown.map((one) => `${one.name}:${one.documents}`).join() + asked.collection;
  if (by("collections").dataset.shown === signature) return;
  by("collections").dataset.shown = signature;
  by("collections").replaceChildren(...shown.map((one) => {
    const attributes = { type: "button", "aria-pressed": one.name === asked.collection };
    const small = element("small", {}, one.documents.toLocaleString("en"));
    const tab = element("button", attributes, one.name, small);
    tab.addEventListener("click", () => choose(one.name));
    return tab;
  }));
}

function choose(name) {
  asked.filters.clear();
  Object.assign(asked, { collection: name, like: null, likeTitle: null, sort: "" });
  drawCollections();
  drawSorts();
  change({});
}

function drawSorts() {
  const sortable = (collection()?.fields ?? []).filter((field) => field.sortable && field.kind !== "text");
  const option = (value, text) => element("option", { value, selected: value === asked.sort }, text);
  by("sort").replaceChildren(
    option("", "by relevance"),
    ...sortable.map((field) => option(`-${field.name}`, `${field.name}, most first`)),
  );
}

// ---- events of the person

let typing = 0;
by("q").value = asked.q;
by("q").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => change({ q: by("q").value, like: null }), 60);
});
by("form").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  change({ q: by("q").value, like: null });
});
by("sort").addEventListener("change", () => change({ sort: by("sort").value }));
by("more").addEventListener("click", () => change({ limit: asked.limit + 2 * PAGE }));
for (const one of address.getAll("only")) {
  const [field, ...value] = one.split(":");
  asked.filters.set(field, value.join(":"));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inField = event.target.matches("input, select");
  const hits = [...by("hits").querySelectorAll(".hit")];
  const at = hits.findIndex((hit) => hit.contains(document.activeElement));
  if (event.key === "/" && !inField) {
    by("q").focus();
    by("q").select();
  } else if (event.key === "ArrowDown" && (at >= 0 || event.target === by("q"))) {
    hits[Math.min(at + 1, hits.length - 1)]?.focus();
  } else if (event.key === "ArrowUp" && at >= 0) {
    (hits[at - 1] ?? by("q")).focus();
  } else if (event.key === "Escape") {
    back();
  } else if (event.key === "m" && !inField && at >= 0) {
    hits[at].querySelector("[data-like]")?.click();
  } else {
    return;
  }
  event.preventDefault();
});

function back() {
  if (asked.like) return change({ like: null, likeTitle: null });
  by("q").value = "";
  by("q").focus();
  if (asked.q || asked.filters.size) {
    asked.filters.clear();
    change({ q: "" });
  }
}

const root = document.documentElement;
if (address.get("theme")) root.dataset.theme = address.get("theme");
by("theme").addEventListener("click", () => {
  const now = root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
});

// ---- live

function seen(next) {
  const first = status === null;
  status = next;
  if (!collection()) asked.collection = firstCollection();
  drawCollections();
  drawPipeline(status);
  if (first || !by("sort").options.length) drawSorts();
  const fresh = collection()?.freshness;
  if (!fresh || document.hidden) return;
  const due = performance.now() - answeredAt >= REFRESH_MS && fresh.view !== answeredView;
  if (first || due) ask({ quietly: !first });
}

/** The collection with the most to see: one with vectors, else the largest. */
function firstCollection() {
  const vectors = (one) => one.fields.some((field) => field.kind.startsWith("vector"));
  const weight = (one) => one.documents + (vectors(one) ? 1e12 : 0);
  const open = status.collections.filter((one) => !one.dropped_at);
  return open.sort((a, b) => weight(b) - weight(a))[0]?.name ?? "";
}

follow({
  status: seen,
  connection: (on) => {
    by("live").toggleAttribute("data-on", on);
    by("live").lastElementChild.textContent = on ? "live" : "reconnecting";
  },
});
