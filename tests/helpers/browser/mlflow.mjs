// Opens MLflow's pages of a retraining and tells as JSON what they show: node mlflow.mjs URL RUN ALIAS CHROMIUM FOLDER
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, run, alias, executablePath, folder] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
});
const page = await browser.newPage({ viewport: { width: 1300, height: 850 } });
page.setDefaultTimeout(60000);

async function texts(path, ...awaited) {
  await page.goto(`${url}/#/${path}`);
  for (const each of awaited) await page.getByText(each).first().waitFor(); // parts of a page come one after the other
  return page.locator("body").innerText();
}

await page.goto(url);
await page.getByText("Model training").first().click(); // not a language model's traces
const told = { experiment: await texts("experiments/1/runs", "1 matching run", "retrain") };
told.run = await texts(`experiments/1/runs/${run}`, "held_out_mdape", "base_out_mdape", "data_sha256", "worst_family");
told.version = await texts("models/sizewright-prior", alias);
await texts(`experiments/1/runs/${run}/artifacts`, "figures");
await page.getByText("figures", { exact: true }).first().click();
await page.getByText("predicted_against_measured.png").first().click();
const picture = page.locator("img[src^='blob:'], img[src*='artifact']").first();
await picture.waitFor();
told.figure = await picture.evaluate(async (img) => {
  await img.decode();
  return [img.naturalWidth, img.naturalHeight];
});
await page.screenshot({ path: join(folder, "mlflow.png"), clip: { x: 0, y: 0, width: 960, height: 700 } });
console.log(JSON.stringify(told));
await browser.close();
