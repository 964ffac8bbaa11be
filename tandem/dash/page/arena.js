"use strict";
// What lies where in the arena of activations over one pass: across, the commands in order; upwards, the bytes.

const phaseColors = { forward: "#4c8dff", recompute: "#e0913a", backward: "#2ea77c", update: "#a78bfa" };

class ArenaPicture {
  constructor(picture) {
    this.picture = picture;
    this.canvas = make("canvas", { tabindex: "0", role: "img", "aria-label":
      `Arena of ${format.bytes(picture.arena_bytes)} over ${picture.commands.length} commands: ${picture.buffers.length} buffers` });
    const legend = make("div", { class: "legend" }, ...Object.entries(phaseColors)
      .filter(([phase]) => picture.commands.some((command) => command[2] === phase))
      .map(([phase, color]) => make("span", {}, make("i", { class: "box", style: { background: color } }), `made in ${phase}`)));
    this.element = make("section", { class: "card wide arena" }, make("div", { class: "head" }, make("h2", {}, "The arena over one pass"),
      make("span", {}, `${format.bytes(picture.arena_bytes)} for activations, ${picture.buffers.length} buffers, ${picture.commands.length} commands`)),
      make("div", { class: "plot" }, this.canvas), legend);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.moved(event));
    this.canvas.addEventListener("pointerleave", () => { this.hover = null; hideTip(); this.draw(); });
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas, { commands, buffers, arena_bytes: bytes } = this.picture;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    c.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
    const left = 70, right = 8, top = 6, bottom = 22, w = width - left - right, h = height - top - bottom;
    const X = (command) => left + command / commands.length * w, Y = (offset) => top + h - offset / bytes * h;
    this.place = { left, top, w, h };
    c.fillStyle = theme("grid"); c.fillRect(left, top, w, h);
    for (const buffer of buffers) {
      const [offset, size, first, last] = buffer;
      c.fillStyle = phaseColors[commands[first][2]] || theme("soft");
      c.globalAlpha = this.hover && this.hover !== buffer ? 0.45 : 0.85;
      const x = X(first), y = Y(offset + size), wide = Math.max(1, X(last + 1) - x), tall = Math.max(0.6, Y(offset) - y);
      c.fillRect(x, y, wide, tall);
      if (tall > 3 && wide > 3) { c.globalAlpha = 1; c.strokeStyle = theme("card"); c.lineWidth = 0.8; c.strokeRect(x, y, wide, tall); }
    }
    c.globalAlpha = 1; c.fillStyle = theme("soft"); c.textAlign = "right"; c.textBaseline = "middle";
    for (let i = 0; i <= 4; i++) c.fillText(format.bytes(bytes * i / 4), left - 8, Math.min(Math.max(Y(bytes * i / 4), top + 6), top + h - 4));
    c.textAlign = "center"; c.textBaseline = "alphabetic";
    for (const at of niceTicks(0, commands.length, Math.max(2, Math.floor(w / 110)))) c.fillText("command " + at, Math.min(Math.max(X(at), left + 36), left + w - 40), height - 5);
  }

  moved(event) {
    if (!this.place) return;
    const { commands, buffers, arena_bytes: bytes } = this.picture, { left, top, w, h } = this.place;
    const command = (event.offsetX - left) / w * commands.length, offset = (top + h - event.offsetY) / h * bytes;
    const found = buffers.find(([at, size, first, last]) => at <= offset && offset < at + size && first <= command && command < last + 1) || null;
    if (found !== this.hover) { this.hover = found; this.draw(); }
    if (!found) return hideTip();
    const [at, size, first, last] = found, [kernel, block, phase] = commands[first];
    showTip(event.clientX, event.clientY, make("b", {}, `${format.bytes(size)} of ${kernel}`),
      make("p", {}, `${block >= 0 ? `block ${block}, ` : ""}${phase}`), make("p", {}, `commands ${first} to ${last} (last read by ${commands[last][0]})`),
      make("p", {}, `at ${format.bytes(at)}`));
  }
}
