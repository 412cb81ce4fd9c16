// Results. Nothing here knows a particular collection: what a document looks like follows from its fields.

import { element, clock } from "/dom.js";

const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
const length = (text) => [...graphemes.segment(text)].length;
const isText = (value) => typeof value === "string" && value !== "";
const isWords = (value) => Array.isArray(value) && value.length > 0 && value.every(isText);
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isNames = (value) => isObject(value) && Object.values(value).every(isText);

/** Sorts a document's fields into the places of a card: badge, title, chips, word lists, names, facts. */
export function present(document, collection) {
  const shown = { badge: null, title: null, chips: [], tags: [], names: [], facts: [], vector: false };
  for (const field of collection.fields) {
    const value = document.fields[field.name];
    if (value === null || value === undefined) continue;
    if (field.kind.startsWith("vector")) shown.vector = true;
    else if (isText(value) && field.kind === "text") placeText(shown, field, value, collection.chips);
    else if (isWords(value)) shown.tags.push({ field: field.name, words: value });
    else if (isNames(value)) shown.names.push({ field: field.name, names: Object.entries(value) });
    else if (`${value}` !== `${document.id}`) shown.facts.push(fact(field, value));
  }
  const title = shown.title ?? { field: "", text: shown.badge?.text ?? `document ${document.id}` };
  return { ...shown, badge: shown.badge?.text, titleField: title.field, title: title.text };
}

function placeText(shown, field, value, chips) {
  const part = { field: field.name, text: value };
  if (!shown.badge && !shown.title && length(value) <= 4) shown.badge = part;
  else if (!shown.title) shown.title = part;
  else if (chips.includes(field.name)) shown.chips.push(part);
  else shown.facts.push(part);
}

function fact(field, value) {
  return { field: field.name, text: factText(field, value) };
}

function factText(field, value) {
  if (field.kind === "timestamp") {
    const time = new Date(Number(BigInt(value) / 1000n));
    return time.toISOString().replace("T", " ").slice(0, 19);
  }
  if (typeof value === "number" && field.kind === "float") return `${Math.round(value * 1e4) / 1e4}`;
  return typeof value === "object" ? JSON.stringify(value) : `${value}`;
}

/** Shows hits; a card whose document has a newer version than before lights up, an open one stays open. */
export function drawHits(list, hits, collection, actions) {
  const before = new Map([...list.querySelectorAll(".hit")].map((card) => [card.dataset.id, card]));
  const focused = document.activeElement.closest(".hit")?.dataset.id;
  const query = JSON.stringify([collection.name, actions.query]);
  const sameQuery = list.dataset.query === query;
  list.dataset.query = query;
  list.replaceChildren(...hits.map((hit) => {
    const old = before.get(`${hit.document.id}`);
    const moved = sameQuery && old && old.dataset.version !== `${hit.document.version}`;
    const card = drawHit(hit, collection, actions, moved);
    if (old?.querySelector(".details")) toggleDetails(card, hit.document, collection);
    return card;
  }));
  if (focused) list.querySelector(`.hit[data-id="${CSS.escape(focused)}"]`)?.focus();
}

function drawHit(hit, collection, actions, moved) {
  const { document } = hit;
  const shown = present(document, collection);
  const text = marker(hit.highlights);
  const data = { "data-id": document.id, "data-version": document.version };
  const kinds = ["hit", shown.badge ? "" : "plain", moved ? "moved" : ""].filter(Boolean).join(" ");
  const attributes = { class: kinds, tabindex: 0, ...data };
  const card = element("li", attributes, badge(shown), body(shown, text), side(hit, shown, actions));
  const toggle = () => toggleDetails(card, document, collection);
  card.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target === card) toggle();
  });
  card.querySelector("[data-details]").addEventListener("click", toggle);
  return card;
}

function badge(shown) {
  if (!shown.badge) return null;
  const code = /[A-Za-z0-9]/.test(shown.badge);
  return element("span", { class: code ? "badge code" : "badge" }, shown.badge);
}

function body(shown, text) {
  const part = ({ field, text: value, label }) => {
    return element("span", {}, label && element("i", {}, label), ...text(field, value));
  };
  const line = (kind, parts) => parts.length && element("p", { class: `words ${kind}` }, ...parts.map(part));
  const chips = shown.chips.map((chip) => element("span", { class: "chip" }, ...text(chip.field, chip.text)));
  const named = (field, [label, name]) => ({ field: `${field}.${label}`, text: name, label });
  const names = ({ field, names }) => names.map((one) => named(field, one));
  const words = ({ field, words }) => words.map((word) => ({ field, text: word }));
  return element(
    "div",
    {},
    element("p", { class: "title" }, ...text(shown.titleField, shown.title), ...chips),
    ...shown.names.map((one) => line("names", names(one))),
    ...shown.tags.map((one) => line("tags", words(one))),
    line("facts", shown.facts.map((one) => ({ ...one, label: one.field }))) || null,
  );
}

function side(hit, shown, actions) {
  const made = element("div", { class: "side" });
  if (hit.similarity !== null && hit.similarity !== undefined) {
    made.append(element("span", { title: "cosine similarity" }, element("b", {}, hit.similarity.toFixed(3))));
  } else {
    const title = `commit ts ${hit.document.version}`;
    made.append(element("span", { title }, clock(hit.document.version)));
  }
  if (shown.vector) {
    const like = button("More like this", { "data-like": true });
    like.addEventListener("click", () => actions.like(hit.document));
    made.append(like);
  }
  made.append(button("Details", { "data-details": true, "aria-expanded": false }));
  return made;
}

function button(text, attributes) {
  return element("button", { class: "act", type: "button", ...attributes }, text);
}

function toggleDetails(card, document, collection) {
  const open = card.querySelector(".details");
  card.querySelector("[data-details]").setAttribute("aria-expanded", open ? "false" : "true");
  if (open) return open.remove();
  const rows = [
    ["commit ts", `${document.version}  (${clock(document.version)})`],
    ["partition", document.partition],
    ["schema version", `${document.schema_version}`],
    ...collection.fields.map((field) => [field.name, plain(document.fields[field.name])]),
  ];
  const line = ([name, value]) => {
    return element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value));
  };
  card.append(element("div", { class: "details" }, element("table", {}, ...rows.map(line))));
}

function plain(value) {
  if (value === null || value === undefined) return "NULL";
  if (Array.isArray(value) && value.length > 16) {
    // Seven digits are what a 32-bit number holds.
    const short = (one) => (typeof one === "number" ? Number(one.toPrecision(7)) : one);
    const first = value.slice(0, 6).map(short);
    return `[${first.join(", ")}, … ${value.length} in all]`;
  }
  return typeof value === "object" ? JSON.stringify(value) : `${value}`;
}

/** A function that cuts a field's text into plain and marked pieces, by the words that matched there. */
function marker(highlights) {
  const words = new Map();
  for (const { field, pieces } of highlights ?? []) {
    const hit = pieces.filter((piece) => piece.hit && piece.text.trim()).map((piece) => piece.text);
    words.set(field, [...(words.get(field) ?? []), ...hit]);
  }
  return (field, text) => {
    const found = [...new Set(words.get(field) ?? [])].sort((a, b) => b.length - a.length);
    if (!found.length) return [text];
    const pieces = text.split(new RegExp(`(${found.map(literally).join("|")})`));
    return pieces.map((piece, index) => (index % 2 ? element("mark", {}, piece) : piece));
  };
}

function literally(word) {
  return word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
