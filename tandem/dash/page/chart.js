"use strict";
// A chart of lines on a canvas. All charts of a page share one view of the horizontal axis and one cursor.

const shared = { view: null, cursor: null, charts: new Set(), onzoom: () => {} };

function niceTicks(low, high, most) {
  const step0 = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(step0));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= step0) || step0;
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9 && ticks.length < 50; at += step)
    ticks.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return ticks;
}

function byteTicks(low, high, most) {
  const unit = 1024 ** Math.floor(Math.log2(Math.max(high, 1)) / 10);
  return niceTicks(low / unit, high / unit, most).map((tick) => tick * unit);
}

function logTicks(low, high, most) {
  const decades = Math.log10(high / low), ticks = [];
  const factors = decades > most ? [1] : decades > 1.5 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const every = Math.max(1, Math.ceil(decades / most));
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p += every)
    for (const f of factors) if (f * 10 ** p >= low * 0.9999 && f * 10 ** p <= high * 1.0001) ticks.push(f * 10 ** p);
  return ticks.length > 1 ? ticks : niceTicks(low, high, most);
}

const timeTicks = (low, high, most) => {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  const step = steps.find((s) => (high - low) / s <= most);
  if (!step || high - low < 5) return niceTicks(low, high, most);
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
  return ticks;
};

// The moving mean that weighs what is near more; what is far left of a long gap counts less.
function smoothed(ys, weight) {
  if (!(weight > 0)) return ys;
  const out = new Array(ys.length);
  let sum = 0, mass = 0;
  for (let i = 0; i < ys.length; i++) {
    if (!Number.isFinite(ys[i])) { out[i] = ys[i]; continue; }
    sum = sum * weight + ys[i]; mass = mass * weight + 1;
    out[i] = sum / mass;
  }
  return out;
}

// The place in xs, which rises, that is nearest to x.
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const mid = (low + high) >> 1; if (xs[mid] < x) low = mid; else high = mid; }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

class Chart {
  // options: {title, format, wide, note}
  constructor(options) {
    this.options = options;
    this.lines = []; this.refs = []; this.marks = [];
    this.canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": options.title });
    this.note = make("span", {}, options.note || "");
    this.element = make("section", { class: "card" + (options.wide ? " wide" : options.low ? " wide low" : "") },
      make("div", { class: "head" }, make("h2", {}, options.title), this.note), make("div", { class: "plot" }, this.canvas));
    const canvas = this.canvas;
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    canvas.addEventListener("pointerleave", () => this.left());
    canvas.addEventListener("pointerdown", (event) => { if (event.button === 0 && event.pointerType !== "touch") { if (event.shiftKey && shared.view) this.grip = event.offsetX; else this.from = event.offsetX; canvas.setPointerCapture(event.pointerId); } });
    canvas.addEventListener("wheel", (event) => this.wheeled(event), { passive: false });
    canvas.addEventListener("pointerup", (event) => this.released(event));
    canvas.addEventListener("dblclick", () => zoom(null));
    canvas.addEventListener("keydown", (event) => this.keyed(event));
    canvas.addEventListener("blur", () => this.left());
    new ResizeObserver(() => this.redraw()).observe(canvas);
    shared.charts.add(this);
  }

  // lines: [{label, color, xs, ys, dashed, dots, smooth}]; refs: [{y, label}]; marks: [{x, label, color}]
  set(lines, refs, marks) {
    this.lines = lines.filter((line) => line.xs.length > 0);
    this.refs = refs || []; this.marks = marks || [];
    const last = this.lines.map((line) => `${line.label}: ${this.options.format(line.ys[line.ys.length - 1])}`);
    this.canvas.setAttribute("aria-label", `${this.options.title}. Last values: ${last.slice(0, 8).join(", ") || "none"}`);
    this.redraw();
  }

  redraw() { if (!this.due) { this.due = true; requestAnimationFrame(() => { this.due = false; this.draw(); }); } }

  extent() {
    let x0 = Infinity, x1 = -Infinity;
    for (const line of this.lines) { x0 = Math.min(x0, line.xs[0]); x1 = Math.max(x1, line.xs[line.xs.length - 1]); }
    if (shared.view) [x0, x1] = shared.view;
    if (!(x1 > x0)) { x0 = (Number.isFinite(x0) ? x0 : 0) - 0.5; x1 = x0 + 1; }
    return [x0, x1];
  }

  values(x0, x1) {
    let y0 = Infinity, y1 = -Infinity;
    for (const line of this.lines) {
      for (const ys of [line.shown, line.ys]) for (let i = 0; i < ys.length; i++) {
        const y = ys[i];
        if (!Number.isFinite(y) || line.xs[i] < x0 || line.xs[i] > x1 || (this.log && y <= 0)) continue;
        if (y < y0) y0 = y; if (y > y1) y1 = y;
      }
    }
    for (const ref of this.refs) if (Number.isFinite(ref.y) && (!this.log || ref.y > 0)) { y0 = Math.min(y0, ref.y); y1 = Math.max(y1, ref.y); }
    if (this.options.zero && !this.log) y0 = Math.min(0, y0);
    if (!Number.isFinite(y0)) [y0, y1] = this.log ? [0.1, 1] : [0, 1];
    if (this.log) { const pad = y1 > y0 ? (y1 / y0) ** 0.05 : 1.3; return [y0 / pad, y1 * pad]; }
    const pad = y1 > y0 ? (y1 - y0) * 0.06 : Math.abs(y0) * 0.1 || 0.5;
    return [this.options.zero && y0 === 0 ? 0 : y0 - pad, y1 + pad];
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    this.log = chartState.log && !this.options.linear;
    for (const line of this.lines) line.shown = line.smooth === false ? line.ys : smoothed(line.ys, chartState.smooth);
    const [x0, x1] = this.extent(), [y0, y1] = this.values(x0, x1);
    c.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
    const yTicks = (this.log ? logTicks : this.options.bytes ? byteTicks : niceTicks)(y0, y1, Math.max(3, Math.round(height / 52)));
    const labels = yTicks.map((y) => this.options.format(y));
    const left = Math.min(84, 10 + Math.max(20, ...labels.map((text) => c.measureText(text).width))), right = 10, top = 8, bottom = 22;
    const w = width - left - right, h = height - top - bottom;
    const ly = this.log ? [Math.log(y0), Math.log(y1)] : [y0, y1];
    const X = (x) => left + (x - x0) / (x1 - x0) * w;
    const Y = (y) => top + h - ((this.log ? Math.log(y) : y) - ly[0]) / (ly[1] - ly[0]) * h;
    this.place = { left, w, x0, x1, X, Y, top, h };

    c.strokeStyle = theme("grid"); c.fillStyle = theme("soft"); c.lineWidth = 1; c.textBaseline = "middle"; c.textAlign = "right";
    yTicks.forEach((y, i) => { const at = Math.round(Y(y)) + 0.5; c.beginPath(); c.moveTo(left, at); c.lineTo(left + w, at); c.stroke(); c.fillText(labels[i], left - 8, at); });
    c.textBaseline = "alphabetic"; c.textAlign = "center";
    const ticksX = (chartState.axis === "t" ? timeTicks : niceTicks)(x0, x1, Math.max(2, Math.floor(w / 90)));
    for (const x of ticksX) c.fillText(chartState.formatX(x), Math.min(Math.max(X(x), left + 12), left + w - 14), height - 5);

    c.save(); c.beginPath(); c.rect(left, top - 4, w, h + 8); c.clip();
    for (const mark of this.marks) {
      c.strokeStyle = mark.color; c.globalAlpha = 0.55; c.setLineDash([2, 3]);
      c.beginPath(); c.moveTo(X(mark.x), top); c.lineTo(X(mark.x), top + h); c.stroke();
    }
    c.globalAlpha = 1;
    for (const ref of this.refs) {
      if (!Number.isFinite(ref.y) || (this.log && ref.y <= 0)) continue;
      c.strokeStyle = theme("soft"); c.setLineDash([5, 4]); c.beginPath(); c.moveTo(left, Y(ref.y)); c.lineTo(left + w, Y(ref.y)); c.stroke();
      c.setLineDash([]); c.textAlign = "right"; c.fillText(ref.label, left + w - 4, Y(ref.y) - 5);
    }
    c.setLineDash([]); c.lineJoin = "round";
    for (const line of this.lines) this.drawLine(c, line, X, Y);
    c.restore();
    this.drawCursor(c);
  }

  drawLine(c, line, X, Y) {
    const path = (ys) => {
      c.beginPath();
      let open = false;
      for (let i = 0; i < ys.length; i++) {
        if (!Number.isFinite(ys[i]) || (this.log && ys[i] <= 0)) { open = false; continue; }
        if (open) c.lineTo(X(line.xs[i]), Y(ys[i])); else c.moveTo(X(line.xs[i]), Y(ys[i]));
        open = true;
      }
      c.stroke();
    };
    c.strokeStyle = c.fillStyle = line.color;
    c.setLineDash(line.dashed ? [6, 4] : []);
    if (line.shown !== line.ys) { c.globalAlpha = 0.22; c.lineWidth = 1; path(line.ys); c.globalAlpha = 1; }
    c.lineWidth = line.dashed ? 1.4 : 1.8; path(line.shown);
    c.setLineDash([]);
    if (line.dots || line.xs.length === 1) for (let i = 0; i < line.xs.length; i++) {
      if (!Number.isFinite(line.ys[i])) continue;
      c.beginPath(); c.arc(X(line.xs[i]), Y(line.ys[i]), 3, 0, 7); c.fillStyle = theme("card"); c.fill(); c.lineWidth = 1.6; c.stroke();
    }
  }

  drawCursor(c) {
    const { left, w, x0, x1, X, Y, top, h } = this.place;
    if (this.from !== undefined && this.to !== undefined) {
      c.fillStyle = theme("accent"); c.globalAlpha = 0.13; c.fillRect(Math.min(this.from, this.to), top, Math.abs(this.to - this.from), h); c.globalAlpha = 1;
    }
    const x = shared.cursor;
    if (x === null || x < x0 || x > x1) return;
    c.strokeStyle = theme("soft"); c.lineWidth = 1; c.beginPath(); c.moveTo(Math.round(X(x)) + 0.5, top); c.lineTo(Math.round(X(x)) + 0.5, top + h); c.stroke();
    for (const line of this.lines) {
      const i = nearest(line.xs, x), y = line.shown[i];
      if (Math.abs(line.xs[i] - x) > (x1 - x0) * 0.04) continue;  // it has nothing near there
      if (!Number.isFinite(y) || X(line.xs[i]) < left - 1 || X(line.xs[i]) > left + w + 1 || (this.log && y <= 0)) continue;
      c.beginPath(); c.arc(X(line.xs[i]), Y(y), 3.5, 0, 7); c.fillStyle = line.color; c.fill(); c.strokeStyle = theme("card"); c.lineWidth = 1.5; c.stroke();
    }
  }

  at(offset) { const p = this.place; return p.x0 + Math.min(1, Math.max(0, (offset - p.left) / p.w)) * (p.x1 - p.x0); }

  moved(event) {
    if (!this.place) return;
    if (this.grip !== undefined) { pan(this.at(this.grip) - this.at(event.offsetX)); this.grip = event.offsetX; return; }
    if (this.from !== undefined) this.to = event.offsetX;
    this.point(this.at(event.offsetX), event.clientX, event.clientY);
  }

  // Moves the cursor of all charts, and shows what this one has there.
  point(x, clientX, clientY) {
    shared.cursor = x;
    for (const chart of shared.charts) chart.redraw();
    const rows = [];
    let where = null;
    for (const line of this.lines) {
      const i = nearest(line.xs, x);
      if (this.place && Math.abs(line.xs[i] - x) > (this.place.x1 - this.place.x0) * 0.04) continue;
      if (where === null || Math.abs(line.xs[i] - x) < Math.abs(where - x)) where = line.xs[i];
      const raw = line.shown !== line.ys && line.shown ? ` (${this.options.format(line.ys[i])})` : "";
      rows.push(make("div", {}, make("span", {}, make("i", { style: { background: line.color } }), line.label), make("b", {}, this.options.format((line.shown || line.ys)[i]) + raw)));
    }
    const near = this.place ? (this.place.x1 - this.place.x0) * 5 / this.place.w : 0;
    const marks = this.marks.filter((mark) => Math.abs(mark.x - x) <= near).slice(0, 3).map((mark) => make("p", {}, mark.label));
    if (rows.length) showTip(clientX, clientY, make("p", {}, chartState.nameX + " " + chartState.formatX(where, true)), ...rows.slice(0, 12), ...marks);
  }

  left() { if (this.from !== undefined) return; shared.cursor = null; hideTip(); for (const chart of shared.charts) chart.redraw(); }

  // Sideways moves what is zoomed in, with Ctrl zooms; all else scrolls the page.
  wheeled(event) {
    if (!this.place) return;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX, { w } = this.place, [x0, x1] = this.extent();
    if (event.ctrlKey) {
      const x = this.at(event.offsetX), factor = Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY / 200)));
      zoom([x - (x - x0) * factor, x + (x1 - x) * factor]);
    } else if (shared.view && Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) pan(sideways * (x1 - x0) / w);
    else return;
    event.preventDefault();
  }

  released(event) {
    this.grip = undefined;
    const from = this.from, to = event.offsetX;
    this.from = this.to = undefined;
    if (from === undefined || Math.abs(to - from) < 6) return this.redraw();
    zoom([this.at(from), this.at(to)].sort((a, b) => a - b));
  }

  keyed(event) {
    if (!this.place || !this.lines.length) return;
    const [x0, x1] = this.extent(), xs = this.lines[0].xs;
    const x = shared.cursor === null ? xs[xs.length - 1] : shared.cursor, span = x1 - x0;
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) {
      const i = Math.min(xs.length - 1, Math.max(0, nearest(xs, x) + move * (event.shiftKey ? 20 : 1)));
      const box = this.canvas.getBoundingClientRect();
      this.point(xs[i], box.left + this.place.X(xs[i]), box.top + 40);
    } else if (event.key === "+" || event.key === "=") zoom([Math.max(x0, x - span / 4), Math.min(x1, x + span / 4)]);
    else if (event.key === "-") { if (shared.view) zoom([x - span, x + span]); }
    else if (event.key === "0" || event.key === "Escape") zoom(null);
    else return;
    event.preventDefault();
  }
}

const chartState = { axis: "s", log: false, smooth: 0.6, formatX: (x) => format.count(x), nameX: "step" };

function zoom(view) {
  shared.view = view;
  shared.onzoom();
  for (const chart of shared.charts) chart.redraw();
}

// What is zoomed in, moved along: what is there is drawn at once, finer rows come when it stands still.
let settled = 0;
function pan(by) {
  if (!shared.view) return;
  const [low, high] = shared.full || [-Infinity, Infinity], [a, b] = shared.view;
  const most = Math.max(Math.min(by, high - b), low - a);
  shared.view = [a + most, b + most];
  for (const chart of shared.charts) chart.redraw();
  clearTimeout(settled);
  settled = setTimeout(() => shared.onzoom(true), 120);
}

function showTip(x, y, ...children) {
  const tip = byId("tip");
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, x + 16 + box.width > innerWidth ? x - box.width - 16 : x + 16) + "px";
  tip.style.top = Math.max(6, Math.min(y + 14, innerHeight - box.height - 8)) + "px";
}
function hideTip() { byId("tip").hidden = true; }
