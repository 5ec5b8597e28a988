// Opens a report in Chromium and tells as JSON what was seen: node look.mjs REPORT CHROMIUM FOLDER
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [report, executablePath, folder] = process.argv.slice(2);
const axe = readFileSync(new URL("./node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--no-first-run"],
});

async function seen(colorScheme) {
  const page = await browser.newPage({ colorScheme, viewport: { width: 1200, height: 900 } });
  const told = { console: [], fetched: [] };
  page.on("console", (message) => told.console.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => told.console.push(`error: ${error}`));
  page.on("request", (request) => told.fetched.push(request.url()));
  await page.goto(pathToFileURL(report).href);
  await page.screenshot({ path: join(folder, `report-${colorScheme}.png`) });
  told.paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  told.svgInk = await page.evaluate(() => getComputedStyle(document.querySelector("svg text")).fill);
  await page.evaluate(axe);
  const found = await page.evaluate(() => axe.run());
  told.violations = found.violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes[0].html.slice(0, 200) }));
  return [page, told];
}

const shown = await browser.newPage({ colorScheme: "light", viewport: { width: 1000, height: 1500 } });
await shown.goto(pathToFileURL(report).href);
await shown.screenshot({ path: join(folder, "report.png") });
const [page, told] = await seen("light");
const [darkPage, dark] = await seen("dark");

const point = page.locator("#pareto [data-tip]").last(); // the chosen one, which no other covers
await point.scrollIntoViewIfNeeded();
await point.hover({ force: true });
told.hovered = { is: await page.locator("#tip").textContent(), of: await point.getAttribute("data-tip") };
await page.mouse.move(0, 0);
told.afterwards = await page.locator("#tip").isVisible();

const group = page.locator(".points").filter({ has: page.locator("[data-tip]:nth-of-type(2)") }).first();
await group.focus();
told.focused = [await page.locator("#tip").textContent()];
await page.keyboard.press("ArrowRight");
told.focused.push(await page.locator("#tip").textContent());
await page.keyboard.press("Escape");
told.escaped = await page.locator("#tip").isVisible();

const count = () => page.locator("#trials tbody tr:visible").count();
told.rows = await count();
await page.fill("#filter", "oom");
told.filtered = { rows: await count(), shown: await page.locator("#shown").textContent() };
await page.fill("#filter", "");
await page.locator("#trials thead button", { hasText: "samples/s" }).click();
const column = await page.locator("#trials thead th").allTextContents();
const cells = `#trials tbody td:nth-child(${column.indexOf("samples/s") + 1})`;
told.sorted = await page.locator(cells).allTextContents();
told.sort = await page.locator("#trials thead th", { hasText: "samples/s" }).getAttribute("aria-sort");

await page.locator("#theme").click();
told.toggled = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
await page.emulateMedia({ media: "print" });
told.printed = {
  paper: await page.evaluate(() => getComputedStyle(document.body).backgroundColor),
  nav: await page.locator("nav").isVisible(),
};
await page.emulateMedia({ media: "screen" });

const keys = [];
await page.evaluate(() => document.activeElement.blur());
for (let press = 0; press < 25; press += 1) {
  await page.keyboard.press("Tab");
  keys.push(await page.evaluate(() => document.activeElement.tagName));
}
told.tabbed = keys;
console.log(JSON.stringify({ light: told, dark }));
await browser.close();
