// Small things that every part of the page needs: building elements, and writing numbers for people.

/** Builds an element. Text is always text, never markup, so that no document can inject any. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, key.startsWith("aria-") ? "true" : "");
    else if (value === false && key.startsWith("aria-")) made.setAttribute(key, "false");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Unix milliseconds of a timestamp of TiDB's oracle: its upper 46 bits. */
export function milliseconds(ts) {
  return Number(BigInt(ts) >> 18n);
}

/** The time of day of a timestamp, to the millisecond. */
export function clock(ts) {
  if (!ts || `${ts}` === "0") return "not known yet";
  return timeOfDay(milliseconds(ts), 3);
}

export function timeOfDay(ms, fraction = 0) {
  const parts = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  if (fraction) parts.fractionalSecondDigits = fraction;
  return new Date(ms).toLocaleTimeString("en-GB", parts);
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

export function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}
