// Drives the page in a browser: page.mjs MODULES CHROMIUM URL LIVE_ID OTHER_ID SHOTS. Prints a JSON object of what it saw.
import fs from "node:fs";
import { createRequire } from "node:module";

const [modules, executablePath, url, live, other, shots] = process.argv.slice(2);
const load = createRequire(modules + "/package.json");
const { chromium } = load("playwright-core");
const axeSource = fs.readFileSync(load.resolve("axe-core/axe.min.js"), "utf8");
const seen = { errors: [], requests: [], violations: [], steps: [] };

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
async function open(options, hash) {
  const page = await browser.newPage({ viewport: { width: 1360, height: 860 }, ...options });
  page.setDefaultTimeout(120000);  // a busy machine takes its time; whoever waits for what comes next need not guess
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => { if (!request.url().startsWith(new URL(url).origin) && !request.url().startsWith("data:")) seen.requests.push(request.url()); });
  await page.goto(url + hash);
  await page.waitForSelector("#tiles dd");
  return page;
}
async function check(page, name) {
  if (shots) await page.screenshot({ path: `${shots}/${name}.png` });
  // The page's policy lets no text be run as a script: a driver may.
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => axe.run());
  for (const violation of found.violations) seen.violations.push(`${name}: ${violation.id}: ${violation.nodes[0].html.slice(0, 160)}`);
}
const step = (page) => page.evaluate(() => Number(document.querySelector("#tiles dd").firstChild.textContent.replace(/\D/g, "")));

const page = await open({}, "#runs=" + encodeURIComponent(live));
seen.first = await step(page);
await page.waitForFunction((before) => Number(document.querySelector("#tiles dd").firstChild.textContent.replace(/\D/g, "")) > before, seen.first);
seen.later = await step(page);
// How long after its step's end a point is drawn: of some rows, as they come.
seen.lags = await page.evaluate((id) => new Promise((resolve) => {
  const lags = [];
  let shown = state.data[id].loss.s.at(-1);
  const look = () => {
    const curve = state.data[id].loss, drawn = charts.get("loss").lines[0].xs.at(-1);
    for (let i = curve.s.length - 1; i >= 0 && curve.s[i] > shown; i--) if (curve.s[i] <= drawn) lags.push(Date.now() / 1000 - curve.t[i]);
    shown = Math.max(shown, drawn);
    if (lags.length < 30) requestAnimationFrame(look); else resolve(lags);
  };
  look();
}), live);
await page.getByLabel("Show curves of " + other).check();
// A run that is evaluated has a second line of its own: only the name tells that the other run is there.
await page.waitForFunction((name) => charts.get("loss").lines.some((line) => line.label === name), other);
seen.lines = await page.evaluate(() => charts.get("loss").lines.map((line) => line.label));
const box = await page.locator("#panel-curves canvas").first().boundingBox();
await page.mouse.move(box.x + box.width * 0.5, box.y + 60);
await check(page, "curves");
await page.mouse.down();
await page.mouse.move(box.x + box.width * 0.8, box.y + 60, { steps: 4 });
await page.mouse.up();
seen.zoomed = await page.evaluate(() => shared.view !== null);
const before = await page.evaluate(() => shared.view[0]);
await page.keyboard.down("Shift");
await page.mouse.move(box.x + box.width * 0.4, box.y + 60);
await page.mouse.down();
await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 4 });
await page.mouse.up();
await page.keyboard.up("Shift");
seen.panned = await page.evaluate(() => shared.view[0]) < before;
await page.locator("#panel-curves canvas").first().focus();
await page.keyboard.press("ArrowLeft");
seen.tip = await page.locator("#tip").isVisible();
await page.keyboard.press("Escape");
seen.reset = await page.evaluate(() => shared.view === null);
for (const axis of ["Tokens", "Time"]) await page.getByRole("button", { name: axis }).click();
await page.getByRole("button", { name: "Log y" }).click();
for (const tab of ["Memory", "Ranks", "Checkpoints", "Events", "Config"]) {
  await page.getByRole("tab", { name: tab }).click();
  await page.waitForFunction((name) => !document.getElementById("panel-" + name).hidden && document.getElementById("panel-" + name).childElementCount > 0, tab.toLowerCase());
  if (tab === "Memory") { await page.waitForSelector(".arena canvas"); await check(page, "memory"); }
  if (tab === "Ranks") { await page.waitForFunction(() => document.querySelectorAll("#panel-ranks tbody tr").length === 2); seen.ranks = await page.locator("#panel-ranks tbody tr").allTextContents(); await check(page, "ranks"); }
  if (tab === "Checkpoints") { await page.waitForSelector("#panel-checkpoints tbody tr"); await check(page, "checkpoints"); }
  if (tab === "Config") { await page.waitForSelector("tr.differs td.key"); seen.differing = await page.locator("tr.differs td.key").allTextContents(); await check(page, "config"); }
}
// The other run's directory has a trace.
await page.getByTitle(other, { exact: true }).click();
await page.getByRole("tab", { name: "Timeline" }).click();
await page.waitForSelector("#panel-timeline canvas");
seen.timeline = await page.locator("#panel-timeline canvas").getAttribute("aria-label");
await check(page, "timeline");
await page.close();
for (const [name, options] of [["dark", { colorScheme: "dark" }], ["phone", { viewport: { width: 390, height: 844 }, hasTouch: true }]]) {
  const more = await open(options, "#runs=" + encodeURIComponent(live + "," + other));
  await more.waitForFunction((count) => charts.get("loss").lines.length >= count, 2);
  await check(more, name);
  seen[name] = await more.evaluate(() => [document.documentElement.dataset.theme, document.documentElement.scrollWidth <= innerWidth]);
  await more.close();
}
console.log(JSON.stringify(seen));
await browser.close();
