"use strict";
// One step's commands: across, the time; a lane for each stream of each rank. Drag to look closer, double click to go back.

const kernelHues = ["#4c8dff", "#e0913a", "#2ea77c", "#a78bfa", "#d9608f", "#3aa6b9", "#b5a42c", "#8b8f98"];
const familyOf = (kernel) => kernel.replace(/^(cpu|cuda|ref|nccl)\./, "").split("_")[0];

class Timeline {
  constructor(picture) {
    this.picture = picture;
    this.view = [0, picture.total_us];
    const sums = new Map();
    for (const [, , duration, kernel] of picture.spans) {
      const family = familyOf(picture.kernels[kernel]);
      sums.set(family, (sums.get(family) || 0) + duration);
    }
    this.families = [...sums.entries()].sort((a, b) => b[1] - a[1]);
    this.colors = new Map(this.families.map(([family], i) => [family, kernelHues[Math.min(i, kernelHues.length - 1)]]));
    this.canvas = make("canvas", { tabindex: "0", role: "img", style: { height: 46 + 44 * picture.lanes.length + "px" }, "aria-label":
      `Timeline of one step of ${format.ms(picture.total_us / 1000)}: ${picture.spans.length} commands on ${picture.lanes.length} streams` });
    const total = this.families.reduce((sum, [, time]) => sum + time, 0);
    const shown = this.families.slice(0, kernelHues.length - 1), rest = this.families.slice(kernelHues.length - 1).reduce((sum, [, time]) => sum + time, 0);
    const legend = make("div", { class: "legend" }, ...shown.map(([family, time]) => make("span", {}, make("i", { class: "box", style: { background: this.colors.get(family) } }), `${family} ${format.percent(time / total)}`)),
      rest > 0 ? make("span", {}, make("i", { class: "box", style: { background: kernelHues[kernelHues.length - 1] } }), `others ${format.percent(rest / total)}`) : null);
    this.element = make("section", { class: "card wide" }, make("div", { class: "head" }, make("h2", {}, "One step"),
      make("span", {}, `${format.ms(picture.total_us / 1000)}, ${picture.spans.length} commands; drag to look closer, double click to go back`)), make("div", { class: "plot" }, this.canvas), legend);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointerdown", (event) => { this.from = event.offsetX; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointermove", (event) => this.moved(event));
    this.canvas.addEventListener("pointerup", (event) => this.released(event));
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; hideTip(); this.draw(); });
    this.canvas.addEventListener("dblclick", () => this.look(0, this.picture.total_us));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  look(from, to) {
    const total = this.picture.total_us, width = Math.min(total, Math.max(total / 1e5, to - from));
    const begin = Math.max(0, Math.min(from, total - width));
    this.view = [begin, begin + width];
    this.draw();
  }

  key(event) {
    const [from, to] = this.view, width = to - from, middle = (from + to) / 2;
    const views = { "+": [middle - width / 4, middle + width / 4], "-": [middle - width, middle + width], "0": [0, this.picture.total_us],
                    ArrowLeft: [from - width / 4, to - width / 4], ArrowRight: [from + width / 4, to + width / 4] };
    if (!views[event.key]) return;
    event.preventDefault();
    this.look(...views[event.key]);
  }

  timeAt(x) { const { left, w } = this.place; return this.view[0] + (x - left) / w * (this.view[1] - this.view[0]); }

  draw() {
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas, { lanes, kernels, spans } = this.picture;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
    const left = 8, right = 8, top = 4, bottom = 22, w = width - left - right, each = (height - top - bottom) / lanes.length;
    this.place = { left, top, w, each };
    const [from, to] = this.view, X = (time) => left + (time - from) / (to - from) * w;
    c.textBaseline = "middle";
    lanes.forEach((name, lane) => {
      const y = top + lane * each;
      c.fillStyle = theme("soft"); c.textAlign = "left"; c.fillText(name, left, y + 8);
      c.fillStyle = theme("grid"); c.fillRect(left, y + 16, w, each - 20);
    });
    for (const span of spans) {
      const [lane, start, duration, kernel] = span;
      if (start + duration < from || start > to) continue;
      const x = Math.max(left, X(start)), wide = Math.max(0.6, Math.min(left + w, X(start + duration)) - x), y = top + lane * each + 16;
      c.globalAlpha = this.hover && this.hover !== span ? 0.55 : 1;
      c.fillStyle = this.colors.get(familyOf(kernels[kernel]));
      c.fillRect(x, y, wide > 3 ? wide - 0.6 : wide, each - 20);
      if (wide > 60) {
        c.save(); c.beginPath(); c.rect(x, y, wide - 4, each - 20); c.clip();
        c.fillStyle = "#10131a"; c.fillText(kernels[kernel], x + 5, y + (each - 20) / 2); c.restore();
      }
    }
    c.globalAlpha = 1; c.fillStyle = theme("soft"); c.textAlign = "center"; c.textBaseline = "alphabetic";
    for (const at of niceTicks(from, to, Math.max(2, Math.floor(w / 110)))) c.fillText(format.ms(at / 1000), Math.min(Math.max(X(at), left + 24), left + w - 24), height - 5);
    if (this.from !== undefined && this.to !== undefined) {
      c.fillStyle = theme("ink") || "#000"; c.globalAlpha = 0.12;
      c.fillRect(Math.min(this.from, this.to), top, Math.abs(this.to - this.from), height - top - bottom); c.globalAlpha = 1;
    }
  }

  moved(event) {
    if (!this.place) return;
    if (this.from !== undefined && event.buttons) { this.to = event.offsetX; this.draw(); return; }
    const { top, each } = this.place, time = this.timeAt(event.offsetX), lane = Math.floor((event.offsetY - top) / each);
    const slack = (this.view[1] - this.view[0]) / this.place.w;
    const found = this.picture.spans.find(([at, start, duration]) => at === lane && start - slack <= time && time <= start + duration + slack) || null;
    if (found !== this.hover) { this.hover = found; this.draw(); }
    if (!found) return hideTip();
    const [, start, duration, kernel, executable, block] = found;
    showTip(event.clientX, event.clientY, make("b", {}, this.picture.kernels[kernel]),
      make("p", {}, `${format.ms(duration / 1000)}, from ${format.ms(start / 1000)} on`), make("p", {}, `${this.picture.executables[executable]}${block >= 0 ? `, block ${block}` : ""}`));
  }

  released() {
    const from = this.from, to = this.to;
    this.from = this.to = undefined;
    if (from !== undefined && to !== undefined && Math.abs(to - from) > 4) this.look(this.timeAt(Math.min(from, to)), this.timeAt(Math.max(from, to)));
    else this.draw();
  }
}
