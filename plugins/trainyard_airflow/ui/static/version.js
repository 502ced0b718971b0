// The page of a version: how good it is, what made it, and where it is used.

import { Curves } from "./curves.js";
import { get, path, watch } from "./data.js";
import { el, main, section, table, unless } from "./dom.js";
import { label, metric, moment, number } from "./format.js";
import { aliasTags, runLink, trail } from "./versions.js";
import "./theme.js";

const { model, version } = document.body.dataset;
const title = `${model} version ${version}`;

watch(look, 2, unless(title));

async function look() {
  const shown = await get(`models/${path(model)}/versions/${path(version)}`);
  const curves = new Curves();
  const hasCurves = Object.keys(shown.curves?.curves ?? {}).length > 0;
  main(
    title,
    trail(model),
    el("div", { class: "head" }, el("h1", {}, title), el("span", {}, ...aliasTags(shown))),
    // What it said then: another version may serve since.
    shown.verdict ? el("p", {}, `The gate said: ${shown.verdict}`) : null,
    lineage(shown),
    metrics(shown),
    hasCurves ? section("curves", "Curves", curves.place) : null,
    parameters(shown),
  );
  if (hasCurves) curves.take(shown.curves);
  return shown.curves?.is_partial ?? false;
}

function lineage(shown) {
  const { promoted } = shown;
  const rows = Object.entries(shown.rows ?? {}).map(([split, count]) => `${number(count)} ${split}`);
  const used = shown.predictions.map((each) =>
    el(
      "li",
      {},
      `${number(each.rows?.out)} rows, ${moment(each.finished)}: `,
      runLink(each.run),
    ),
  );
  const entries = [
    ["Data", el("code", {}, shown.dataset ?? "unknown"), rows.length ? ` (${rows.join(", ")} rows)` : ""],
    ["Made", `${moment(shown.created)} by `, runLink(shown.made_by)],
    ["MLflow run", shown.mlflow.url ? el("a", { href: shown.mlflow.url, "data-outside": true, target: "_blank", rel: "noopener" }, shown.mlflow.run_id) : el("code", {}, shown.mlflow.run_id ?? "none")],
    promoted
      ? ["Let serve", `${moment(Date.parse(promoted.when) / 1000)} by ${promoted.who}: ${promoted.why}`]
      : ["Let serve", "never"],
    ["Predictions", used.length ? el("ul", {}, used) : "none in the newest runs"],
  ];
  return section(
    "lineage",
    "Where it comes from, and where it goes",
    el("dl", {}, entries.flatMap(([name, ...what]) => [el("dt", {}, name), el("dd", {}, ...what)])),
  );
}

function metrics(shown) {
  const judged = shown.evaluation?.metrics;
  const rows = judged
    ? Object.entries(judged).map(([name, value]) => [
        label(name),
        metric(value.value),
        `${metric(value.low)} to ${metric(value.high)}`,
      ])
    : Object.entries(shown.metrics).map(([name, value]) => [label(name), metric(value)]);
  if (!rows.length) return null;
  const heads = judged ? ["Metric", "Value", "Interval"] : ["Metric", "Value"];
  const caption = judged ? "As its run judged it" : "As MLflow keeps them, the last value of each";
  return section(
    "metrics",
    "Metrics",
    table(caption, heads, rows, { numeric: [1, 2], showCaption: true }),
  );
}

function parameters(shown) {
  const rows = Object.entries(shown.params).map(([name, value]) => [name, { text: value, class: "text" }]);
  return section(
    "parameters",
    "Parameters",
    rows.length ? table("Parameters", ["Setting", "Value"], rows) : el("p", { class: "quiet" }, "None are recorded."),
  );
}
