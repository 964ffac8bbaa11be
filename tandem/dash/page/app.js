"use strict";
// The page: a list of runs, the curves of those that are chosen, and all there is about the one in focus.

const palette = { light: ["#2f6fde", "#c8661b", "#16875d", "#a8438a", "#6d4fd0", "#bb3a34", "#1f8aa0", "#7d6e17"],
                  dark: ["#76a7ff", "#f0a35e", "#4fcb9d", "#e48bc4", "#b09bff", "#f4877f", "#62cbe0", "#d0bf58"] };
const points = 1400;
const stored = byId("data").textContent.trim();
const report = stored ? JSON.parse(stored) : null;

// Where answers come from: the server, or, in a report, the page itself.
const source = {
  async get(path, query) {
    if (report) return path === "runs" ? report.runs : path === "run" ? report.detail[query.id] : report[path][query.id];
    const answer = await fetch("api/" + path + "?" + new URLSearchParams(query || {}));
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return answer.json();
  },
};

const state = { runs: [], chosen: [], focus: null, data: {}, zoomed: {}, detail: {}, arena: {}, timeline: {}, tab: "curves", onlyDiffering: true };
const charts = new Map();
const panels = {};
const tabs = [["curves", "Curves"], ["memory", "Memory"], ["timeline", "Timeline"], ["ranks", "Ranks"], ["checkpoints", "Checkpoints"], ["events", "Events"], ["config", "Config"]];

const row = (id) => state.runs.find((run) => run.id === id) || { id };
const colorOf = (id) => palette[document.documentElement.dataset.theme][Math.max(0, state.chosen.indexOf(id)) % 8];
const isSamples = () => state.runs.some((run) => run.id === state.focus && run.unit === "samples");

const cards = [
  { name: "loss", title: "Loss", wide: true, format: format.number },
  { name: "eval_accuracy", title: "Accuracy on held-out data", format: format.percent, linear: true, dots: true },
  { name: "lr", title: "Learning rate", format: format.number, smooth: false },
  { name: "grad_norm", title: "Gradient norm", format: format.number },
  { name: "tokens_per_s", title: "Tokens per second", format: format.count, zero: true },
  { name: "samples_per_s", title: "Samples per second", format: format.count, zero: true },
  { name: "mfu", title: "Model FLOPs utilisation", format: format.percent, zero: true, linear: true },
  { name: "step_ms", title: "Time of a step", format: format.ms, zero: true },
  { name: "data_wait_ms", title: "Wait for data", format: format.ms, zero: true },
  { name: "loss_scale", title: "Loss scale", format: format.count, smooth: false, onlyVarying: true },
  { name: "gpu_busy_percent", title: "GPU busy", format: (v) => format.number(v) + "%", zero: true, linear: true },
  { name: "gpu_power_w", title: "GPU power", format: (v) => format.number(v) + " W", zero: true, linear: true },
  { name: "gpu_temperature_c", title: "GPU temperature", format: (v) => format.number(v) + " °C", linear: true },
];
const names = [...cards.map((card) => card.name), "eval_loss", "rss_bytes", "device_bytes"];

// ---- what is shown ----

function xsOf(id, curve) {
  if (chartState.axis !== "t") return curve[chartState.axis];
  const first = (state.data[id].loss || curve).t[0];
  return curve.t.map((time) => time - first);
}
const curveOf = (id, name) => (shared.view && state.zoomed[id] && state.zoomed[id][name]) || (state.data[id] || {})[name];

function lineOf(id, name, more) {
  const curve = curveOf(id, name);
  return curve && { label: id, color: colorOf(id), xs: xsOf(id, curve), ys: curve.y, ...more };
}

function marksOf(id) {
  const kinds = { resume: "warn", overflow: "bad", diverged: "bad", interrupt: "warn", warning: "warn", changed: "warn", damaged_metrics: "bad", bad_checkpoint: "bad", sink: "warn", spike: "bad", diverging: "bad", straggler: "warn", failure: "bad", checkpoint_failed: "bad" };
  const curve = (state.data[id] || {}).loss;
  if (!curve || !curve.s.length || !state.detail[id]) return [];
  return state.detail[id].events.filter((event) => kinds[event.type]).slice(-60).map((event) => {
    const i = Number.isFinite(event.step) ? nearest(curve.s, event.step) : nearest(curve.t, Date.parse(event.time) / 1000);
    return { x: xsOf(id, curve)[i], label: `${event.type}: ${event.message}`, color: theme(kinds[event.type]) };
  });
}

const floorOf = (id) => { const summary = (state.detail[id] || {}).summary; return summary && summary.loss_floor; };
const varies = (curve) => curve && curve.y.some((y) => y !== curve.y[0]);

function drawCurves() {
  for (const card of cards) {
    const ids = state.chosen.filter((id) => { const curve = curveOf(id, card.name); return curve && curve.y.length && (!card.onlyVarying || varies(curve)); });
    const chart = charts.get(card.name);
    chart.element.hidden = ids.length === 0;
    if (!ids.length) continue;
    const lines = ids.map((id) => lineOf(id, card.name, { smooth: card.smooth, dots: card.dots }));
    const refs = [];
    if (card.name === "loss") {
      for (const id of ids) {
        const evals = lineOf(id, "eval_loss", { dashed: true, dots: true, smooth: false });
        if (evals && evals.xs.length) lines.push({ ...evals, label: ids.length > 1 ? id + ", held out" : "held out" });
      }
      const floor = floorOf(state.focus);
      if (Number.isFinite(floor)) refs.push({ y: floor, label: "floor " + format.number(floor) });
      chart.note.textContent = "line: training, circles: held out" + (refs.length ? ", floor: the data's own entropy" : "");
    }
    chart.set(lines, refs, marksOf(state.focus));
  }
}

function drawMemory() {
  const detail = state.detail[state.focus], panel = panels.memory;
  if (!detail) return;
  const planned = (detail.plan && detail.plan.planned_bytes) || (detail.summary && detail.summary.planned_bytes) || null;
  const total = planned ? Object.values(planned).reduce((a, b) => a + b, 0) : NaN;
  const host = planned ? planned.host || 0 : 0;
  const lines = [["rss_bytes", "resident, host", 0], ["device_bytes", "on the device", 1]].map(([name, label, i]) => {
    const curve = curveOf(state.focus, name);
    return curve && curve.y.some((y) => y > 0) ? { label, color: palette[document.documentElement.dataset.theme][i], xs: xsOf(state.focus, curve), ys: curve.y, smooth: false } : null;
  }).filter(Boolean);
  const onDevice = lines.some((line) => line.label === "on the device");
  panel.chart.set(lines, Number.isFinite(total) ? [{ y: onDevice ? total - host : total, label: "planned" }] : []);
  const colors = palette[document.documentElement.dataset.theme];
  const parts = Object.entries(planned || {}).filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]);
  panel.parts.replaceChildren(
    make("div", { class: "head" }, make("h2", {}, "Planned, rank 0"), make("span", {}, Number.isFinite(total) ? format.bytes(total) + ", allocated to the byte before the first step" : "no plan.json")),
    make("div", { class: "stack", role: "img", "aria-label": parts.map(([name, bytes]) => `${name} ${format.bytes(bytes)}`).join(", ") },
      ...parts.map(([, bytes], i) => make("i", { style: { width: 100 * bytes / total + "%", background: colors[i % 8] } }))),
    make("div", { class: "legend" }, ...parts.map(([name, bytes], i) => make("span", {}, make("i", { class: "box", style: { background: colors[i % 8] } }), `${name} ${format.bytes(bytes)}`))));
  drawArena();
}

async function drawArena() {
  const id = state.focus, place = panels.memory.arena;
  if (state.tab !== "memory" || place.dataset.id === id) return;
  if (!(id in state.arena)) state.arena[id] = await source.get("arena", { id }).catch(() => null);
  if (state.focus !== id) return;
  place.dataset.id = id;
  const picture = state.arena[id];
  place.replaceChildren(picture && picture.buffers.length ? new ArenaPicture(picture).element : make("p", { class: "empty" }, "No plan.json that can be drawn."));
}

async function drawTimeline() {
  const id = state.focus, place = panels.timeline.element;
  if (state.tab !== "timeline" || place.dataset.id === id) return;
  if (!state.timeline[id]) state.timeline[id] = await source.get("timeline", { id }).catch(() => null);
  if (state.focus !== id) return;
  const picture = state.timeline[id];
  place.dataset.id = picture ? id : "";
  place.replaceChildren(picture ? new Timeline(picture).element : make("section", { class: "card wide" }, make("div", { class: "head" }, make("h2", {}, "One step")),
    make("p", { class: "empty" }, "No trace yet. `tandem profile CONFIG --trace RUN/trace.json` writes one into the run's directory.")));
}

function table(heads, rows, empty) {
  if (!rows.length) return make("p", { class: "empty" }, empty);
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads.map(([text, kind]) => make("th", { class: kind, scope: "col" }, text)))), make("tbody", {}, ...rows)));
}

function drawRanks() {
  const ranks = (state.detail[state.focus] || {}).ranks || [];
  // Ranks wait for each other, so that their steps take the same time: the slow one is the one that does not wait.
  const busy = (rank) => rank.step_ms - (rank.comm_wait_ms || 0);
  const times = ranks.map(busy).filter(Number.isFinite).sort((a, b) => a - b);
  const middle = times[(times.length - 1) >> 1], most = Math.max(...ranks.map((rank) => rank.step_ms || 0));
  const furthest = Math.max(...ranks.map((rank) => rank.step || 0));
  const share = (rank) => { const data = rank.data_wait_ms || 0, wait = rank.comm_wait_ms || 0; return [["busy", Math.max(0, rank.step_ms - data - wait)], ["for ranks", wait], ["for data", data]]; };
  const colors = palette[document.documentElement.dataset.theme];
  const doing = (rank) => !rank.command || rank.state === "done" ? "" : rank.command + (Number.isFinite(rank.block) && rank.block >= 0 ? ` of block ${rank.block}` : "") +
    (rank.since_s >= 1 ? ` for ${format.number(Math.round(rank.since_s))} s` : "") + ((rank.waiting_for || []).length ? `, waits for ${rank.waiting_for.join(", ")}` : "");
  panels.ranks.element.replaceChildren(make("section", { class: "card wide" }, make("div", { class: "head" }, make("h2", {}, "Ranks"), make("span", {}, "means of the last steps")),
    ...(ranks.length ? [make("div", { class: "legend" }, ...["busy", "waits for ranks", "waits for data"].map((name, i) => make("span", {}, make("i", { class: "box", style: { background: colors[i] } }), name)))] : []),
    table([["rank", ""], ["node", ""], ["state", ""], ["step", "num"], ["step time", ""], ["wait for ranks", "num"], ["wait for data", "num"], ["resident", "num"], ["device", "num"], ["doing", ""], ["note", ""]],
      ranks.map((rank) => make("tr", {}, make("td", {}, String(rank.rank)), make("td", {}, String(rank.node ?? "–")), make("td", {}, String(rank.state ?? "–")), make("td", { class: "num" }, format.number(rank.step)),
        make("td", { class: "bar-cell" }, make("span", { class: "shares" }, ...share(rank).map(([name, ms], i) => make("i", { title: `${name} ${format.ms(ms)}`, style: { width: 90 * ms / most + "px", background: colors[i] } }))), format.ms(rank.step_ms)),
        make("td", { class: "num" }, format.ms(rank.comm_wait_ms)), make("td", { class: "num" }, format.ms(rank.data_wait_ms)), make("td", { class: "num" }, format.bytes(rank.rss_bytes)),
        make("td", { class: "num" }, rank.device_bytes ? format.bytes(rank.device_bytes) : "–"), make("td", { class: "doing" }, doing(rank)),
        make("td", { class: "tag" }, rank.step < furthest - 1 ? `behind by ${furthest - rank.step}` : busy(rank) > 1.25 * middle && busy(rank) > middle + 2 ? "slow" : ""))),
      "One rank: its times and memory are the curves.")));
}

function drawCheckpoints() {
  const saves = (state.detail[state.focus] || {}).checkpoints || [];
  panels.checkpoints.element.replaceChildren(make("section", { class: "card wide" }, make("div", { class: "head" }, make("h2", {}, "Checkpoints"), make("span", {}, saves.length ? `${saves.length} committed` : "")),
    table([["step", "num"], ["committed", ""], ["size", "num"], ["held the run up", "num"], ["written in", "num"], ["digest", ""]],
      [...saves].reverse().map((save) => make("tr", {}, make("td", { class: "num" }, format.number(save.step)), make("td", {}, format.time(save.time)),
        make("td", { class: "num" }, format.bytes(save.bytes)), make("td", { class: "num" }, format.ms(1000 * save.snapshot_s)), make("td", { class: "num" }, format.ms(1000 * save.write_s)), make("td", { class: "key", title: save.digest || "no longer there" }, save.digest ? save.digest.slice(0, 12) : "–"))),
      "None yet.")));
}

function drawEvents() {
  const events = (state.detail[state.focus] || {}).events || [];
  panels.events.element.replaceChildren(make("section", { class: "card wide" }, make("div", { class: "head" }, make("h2", {}, "Events"), make("span", {}, "newest first, UTC")),
    table([["time", ""], ["what", ""], ["step", "num"], ["message", ""]],
      [...events].reverse().map((event) => make("tr", {}, make("td", { class: "key" }, format.time(event.time)), make("td", {}, event.type),
        make("td", { class: "num" }, Number.isFinite(event.step) ? format.number(event.step) : ""), make("td", { class: "doc" }, String(event.message ?? "")))), "None yet.")));
}

function drawConfig() {
  const ids = state.chosen.filter((id) => state.detail[id]), several = ids.length > 1;
  const keys = new Map();
  for (const id of ids) for (const entry of state.detail[id].config) keys.set(entry.key, { ...entry, ...keys.get(entry.key), values: { ...(keys.get(entry.key) || {}).values, [id]: entry } });
  const rows = [...keys.values()].map((entry) => {
    const values = ids.map((id) => entry.values[id] && entry.values[id].value);
    return { entry, values, differs: several && values.some((value) => value !== values[0]), set: ids.some((id) => entry.values[id] && entry.values[id].set) };
  }).filter((one) => !state.onlyDiffering || (several ? one.differs : one.set));
  const choice = make("label", {}, make("input", { type: "checkbox", id: "differing", onchange: (event) => { state.onlyDiffering = event.target.checked; drawConfig(); } }), several ? " only keys that differ" : " only keys that are not the default");
  choice.firstChild.checked = state.onlyDiffering;
  const history = several || !ids.length ? [] : state.detail[ids[0]].history;
  panels.config.element.replaceChildren(make("section", { class: "card wide" }, make("div", { class: "head" }, make("h2", {}, several ? "Config of " + ids.length + " runs" : "Config"), make("span", {}, several ? "choose runs on the left to compare" : "resolved, as the run uses it")),
    make("div", { class: "options" }, choice), ...history.map((line) => make("p", { class: "tag" }, line)),
    table([["key", ""], ...(several ? ids : ["value"]).map((text) => [text, ""]), ...(several ? [] : [["default", ""]]), ["what it is", "doc"]],
      rows.map(({ entry, values, differs, set }) => make("tr", { class: differs ? "differs" : set ? "set" : "" }, make("td", { class: "key" }, entry.key),
        ...values.map((value) => make("td", { class: "val" }, value === undefined ? "–" : value)), ...(several ? [] : [make("td", { class: "val" }, entry.default ?? "")]), make("td", { class: "doc" }, entry.doc || ""))),
      several ? "Every key is the same." : "Every key has its default.")));
}

function drawTiles() {
  const run = row(state.focus), detail = state.detail[state.focus] || {}, summary = detail.summary || {};
  byId("name").textContent = run.id || "Runs";
  document.title = run.id ? `${run.id} · tandem` : "tandem";
  byId("path").textContent = detail.path || "";
  const badge = byId("state");
  badge.hidden = !run.state; badge.textContent = run.state || ""; badge.className = "state " + (run.state || "");
  const share = run.of > 0 && run.step >= 0 ? Math.min(1, run.step / run.of) : null;
  byId("progress").hidden = share === null || run.state === "done";
  byId("progress").firstElementChild.style.width = 100 * (share || 0) + "%";
  const curve = (state.data[run.id] || {}).loss;
  let left = null;
  if (run.state === "running" && curve && curve.s.length > 2) {
    const i = Math.max(0, curve.s.length - 50), last = curve.s.length - 1;
    const each = (curve.t[last] - curve.t[i]) / (curve.s[last] - curve.s[i]);
    left = each * (run.of - run.step);
  }
  const floor = summary.loss_floor, above = Number.isFinite(floor) && Number.isFinite(run.eval_loss) ? `floor ${format.number(floor)}` : "";
  const planned = detail.plan && detail.plan.planned_total;
  const mesh = detail.plan && detail.plan.mesh, numRanks = mesh ? mesh.data * mesh.tensor * mesh.pipeline : 1;
  const tiles = [["step", format.number(run.step), run.of ? "of " + format.number(run.of) : ""], ["loss", format.number(run.loss), ""],
    ["held-out loss", Number.isFinite(run.eval_loss) ? format.number(run.eval_loss) : null, above],
    [(run.unit || "tokens") + "/s", Number.isFinite(run.rate) ? format.count(run.rate) : null, ""], ["MFU", Number.isFinite(run.mfu) && run.mfu > 0 ? format.percent(run.mfu) : null, ""],
    ["left", left === null ? null : format.duration(left), ""], ["took", run.state === "done" && summary.wall_s ? format.duration(summary.wall_s) : null, ""],
    ["memory planned", planned ? format.bytes(planned) : null, ""], ["parameters", detail.plan && detail.plan.parameters ? format.count(detail.plan.parameters) : null, ""],
    ["ranks", numRanks > 1 ? String(numRanks) : null, ""]];
  byId("tiles").replaceChildren(...tiles.filter(([, value]) => value !== null).map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, more ? make("small", {}, " " + more) : ""))));
}

function drawList() {
  const wanted = byId("find").value.trim().toLowerCase();
  const shown = state.runs.filter((run) => run.id.toLowerCase().includes(wanted)).slice(0, 500);
  byId("none").hidden = state.runs.length > 0;
  byId("runs").replaceChildren(...shown.map((run) => {
    const chosen = state.chosen.includes(run.id);
    const box = make("input", { type: "checkbox", "aria-label": "Show curves of " + run.id, onchange: () => choose(run.id) });
    box.checked = chosen;
    return make("li", { class: run.id === state.focus ? "focus" : "", style: chosen ? { "--run": colorOf(run.id) } : {} }, box,
      make("button", { type: "button", "aria-current": run.id === state.focus ? "true" : null, title: run.id, onclick: () => focusOn(run.id) },
        make("span", { class: "what" }, make("i", { class: "dot " + run.state }), make("b", {}, run.id)),
        make("span", { class: "how" }, make("span", {}, `${run.state}, ${format.count(run.step)}${run.of ? " / " + format.count(run.of) : ""}`), make("span", {}, Number.isFinite(run.loss) ? format.number(run.loss) : ""))));
  }));
}

const drawPanel = { curves: drawCurves, memory: drawMemory, timeline: drawTimeline, ranks: drawRanks, checkpoints: drawCheckpoints, events: drawEvents, config: drawConfig };
let due = false;
function draw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    drawList(); drawTiles();
    byId("axis-count").textContent = isSamples() ? "Samples" : "Tokens";
    chartState.nameX = { s: "step", n: isSamples() ? "samples" : "tokens", t: "after" }[chartState.axis];
    chartState.formatX = chartState.axis === "t" ? format.duration : (x, exact) => exact ? Math.round(x).toLocaleString("en-US") : format.count(x);
    byId("reset").hidden = !shared.view;
    drawPanel[state.tab]();
  });
}

// ---- what is known ----

async function load(id, again) {
  if (!again && state.data[id]) return;
  const [data, detail] = await Promise.all([source.get("series", { id, names: asList(names), points }), source.get("run", { id })]);
  state.data[id] = data; state.detail[id] = detail;
}

async function loadZoomed(moved) {
  if (!moved) state.zoomed = {};
  const ends = state.chosen.map((id) => state.data[id] && state.data[id].loss && xsOf(id, state.data[id].loss)).filter((xs) => xs && xs.length);
  shared.full = ends.length ? [Math.min(...ends.map((xs) => xs[0])), Math.max(...ends.map((xs) => xs[xs.length - 1]))] : null;
  const view = shared.view;
  draw();
  if (!view || report) return;
  await Promise.all(state.chosen.map(async (id) => {
    const curve = (state.data[id] || {}).loss;
    if (!curve || curve.s.length < points / 2) return;
    const xs = xsOf(id, curve), first = Math.max(0, nearest(xs, view[0]) - 1), last = Math.min(xs.length - 1, nearest(xs, view[1]) + 1);
    const finer = await source.get("series", { id, names: asList(names), points, from: curve.s[first], to: curve.s[last] });
    if (shared.view === view) state.zoomed[id] = finer;
  }));
  draw();
}
shared.onzoom = (moved) => loadZoomed(moved);

async function choose(id) {
  if (state.chosen.includes(id) && state.chosen.length > 1) {
    state.chosen = state.chosen.filter((other) => other !== id);
    if (state.focus === id) state.focus = state.chosen[0];
  } else if (!state.chosen.includes(id)) {
    state.chosen = [...state.chosen, id].slice(-8);
    await load(id).catch((error) => { state.chosen = state.chosen.filter((other) => other !== id); console.warn(error.message); });
  }
  remember(); listen(); draw();
}

async function focusOn(id) {
  if (!state.chosen.includes(id)) {
    if (state.chosen.length <= 1) state.chosen = [];
    state.chosen = [...state.chosen, id].slice(-8);
  }
  state.focus = id;
  await load(id).catch(() => {});
  remember(); listen(); draw();
}

function remember() {
  if (!report) history.replaceState(null, "", "#" + new URLSearchParams({ runs: asList(state.chosen), focus: state.focus || "", tab: state.tab }));
}

function append(id, rows) {
  const data = state.data[id];
  if (!data) return;
  for (const [name, curve] of Object.entries(rows)) {
    const own = data[name] || (data[name] = { s: [], n: [], t: [], y: [] });
    for (const key of ["s", "n", "t", "y"]) own[key].push(...curve[key]);
  }
  if (data.loss && data.loss.s.length > 4 * points) load(id, true).then(draw, () => {});
}

let stream = null, listening = "";
function listen() {
  if (report) return;
  const ids = asList(state.chosen);
  if (stream && ids === listening) return;
  if (stream) stream.close();
  listening = ids;
  stream = new EventSource("api/live?" + new URLSearchParams({ ids }));
  const on = (name, act) => stream.addEventListener(name, (event) => { act(JSON.parse(event.data)); draw(); });
  on("runs", (runs) => { state.runs = runs; if (!state.focus && runs.length) focusOn(runs[0].id); });
  on("rows", ({ id, rows }) => append(id, rows));
  on("reset", ({ id }) => load(id, true).then(draw, () => {}));
  on("detail", ({ id }) => source.get("run", { id }).then((detail) => { state.detail[id] = detail; draw(); }, () => {}));
  stream.onopen = () => { byId("live").hidden = false; };
  stream.onerror = () => { byId("live").hidden = true; };
}

// ---- the page itself ----

function show(tab) {
  state.tab = tab;
  for (const [name] of tabs) {
    panels[name].element.hidden = name !== tab;
    const button = byId("tab-" + name);
    button.setAttribute("aria-selected", String(name === tab));
    button.tabIndex = name === tab ? 0 : -1;
  }
  remember(); draw();
}

function build() {
  for (const [name, title] of tabs) {
    byId("tabs").append(make("button", { type: "button", role: "tab", id: "tab-" + name, "aria-controls": "panel-" + name, onclick: () => show(name) }, title));
    panels[name] = { element: make("div", { role: "tabpanel", id: "panel-" + name, "aria-labelledby": "tab-" + name, class: name === "curves" || name === "memory" ? "grid" : "" }) };
    byId("panels").append(panels[name].element);
  }
  byId("tabs").addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    const at = (tabs.findIndex(([name]) => name === state.tab) + move + tabs.length) % tabs.length;
    show(tabs[at][0]); byId("tab-" + tabs[at][0]).focus();
  });
  for (const card of cards) { const chart = new Chart(card); charts.set(card.name, chart); panels.curves.element.append(chart.element); }
  panels.memory.parts = make("section", { class: "card wide" });
  panels.memory.chart = new Chart({ title: "Measured", format: format.bytes, bytes: true, zero: true, linear: true, low: true });
  panels.memory.arena = make("div", { class: "card-place", style: { "grid-column": "1 / -1" } });
  panels.memory.element.append(panels.memory.parts, panels.memory.arena, panels.memory.chart.element);
  const setTheme = (name) => { document.documentElement.dataset.theme = name; panels.memory.arena.dataset.id = ""; panels.timeline.element.dataset.id = ""; draw(); };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  for (const button of byId("axis").children) button.addEventListener("click", () => {
    chartState.axis = button.dataset.axis;
    for (const other of byId("axis").children) other.setAttribute("aria-pressed", String(other === button));
    shared.cursor = null; zoom(null);
  });
  byId("smooth").addEventListener("input", (event) => { chartState.smooth = Number(event.target.value); draw(); });
  byId("log").addEventListener("click", (event) => { chartState.log = !chartState.log; event.currentTarget.setAttribute("aria-pressed", String(chartState.log)); draw(); });
  byId("reset").addEventListener("click", () => zoom(null));
  byId("find").addEventListener("input", draw);
}

async function begin() {
  build();
  const asked = new URLSearchParams(location.hash.slice(1));
  state.runs = await source.get("runs");
  const known = fromList(asked.get("runs") || "").filter((id) => state.runs.some((run) => run.id === id));
  state.chosen = known.length ? known : report ? state.runs.slice(0, 8).map((run) => run.id) : state.runs.slice(0, 1).map((run) => run.id);
  state.focus = state.chosen.includes(asked.get("focus")) ? asked.get("focus") : state.chosen[0] || null;
  await Promise.all(state.chosen.map((id) => load(id)));
  show(tabs.some(([name]) => name === asked.get("tab")) ? asked.get("tab") : "curves");
  listen();
}
begin();
