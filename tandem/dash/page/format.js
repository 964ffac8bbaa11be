"use strict";
// Numbers as people read them, and elements without ever parsing text as markup.

const format = {
  number(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(size >= 100 ? 5 : 4)));
  },
  count(value) {
    if (!Number.isFinite(value)) return "–";
    for (const [unit, size] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]])
      if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + unit;
    return String(Number(value.toPrecision(4)));
  },
  bytes(value) {
    if (!Number.isFinite(value)) return "–";
    for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + " " + unit;
    return value + " B";
  },
  percent(value) { return Number.isFinite(value) ? Number((100 * value).toPrecision(3)) + "%" : "–"; },
  ms(value) { return !Number.isFinite(value) ? "–" : value >= 1000 ? Number((value / 1000).toPrecision(3)) + " s" : Number(value.toPrecision(3)) + " ms"; },
  duration(seconds) {
    if (!Number.isFinite(seconds)) return "–";
    if (seconds < 60) return Number(seconds.toPrecision(2)) + " s";
    const minutes = Math.round(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (minutes < 60) return minutes + " min";
    if (hours < 24) return hours + " h" + (minutes % 60 ? " " + (minutes % 60) + " min" : "");
    return days + " d" + (hours % 24 ? " " + (hours % 24) + " h" : "");
  },
  time(text) { const date = new Date(text); return isNaN(date) ? String(text) : date.toISOString().slice(0, 19).replace("T", " "); },
};

// make("td", {class: "num"}, "text" or elements...)
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, to] of Object.entries(value)) element.style.setProperty(key, to);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Names in one word of an address: they may have commas themselves.
const asList = (names) => names.map(encodeURIComponent).join(",");
const fromList = (text) => text.split(",").map((name) => { try { return decodeURIComponent(name); } catch { return name; } });

const byId = (id) => document.getElementById(id);
const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
