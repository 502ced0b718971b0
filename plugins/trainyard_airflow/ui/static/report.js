// What jobs reported, in tables and pictures: metrics, the gate's rules, mistakes, trials.

import { picture } from "./data.js";
import { el, section, table } from "./dom.js";
import { capital, duration, label, metric, number, signed } from "./format.js";

export function verdict(found) {
  if (!found) return null;
  const rows = found.verdict.map((rule) => [
    capital(rule.name.replaceAll("_", " ")),
    { text: rule.passed ? "pass" : "fail", class: rule.passed ? "good" : "bad" },
    rule.measured === null ? "–" : metric(rule.measured),
    rule.wanted,
  ]);
  return section(
    "verdict",
    "The gate, rule by rule",
    table("Rules of the gate", ["Rule", "Verdict", "Measured", "Wanted"], rows, { numeric: [2] }),
    found.mode === "dry_run"
      ? el("p", { class: "quiet" }, "A dry run: nothing was promoted.")
      : null,
  );
}

export function metrics(evaluation) {
  const { metrics: own, champion, differences } = evaluation;
  const less = new Set(evaluation.smaller_is_better);
  const heads = ["Metric", "This model", "Interval"];
  if (champion) heads.push(`Champion, version ${champion.version}`, "Difference", "Its interval");
  const rows = Object.entries(own).map(([name, value]) => {
    const row = [label(name), metric(value.value), `${metric(value.low)} to ${metric(value.high)}`];
    if (!champion) return row;
    const change = differences?.[name];
    // Only a difference whose interval leaves out 0 is called one.
    const sure = change && (change.low > 0 || change.high < 0);
    const better = sure && (less.has(name) ? change.value < 0 : change.value > 0);
    return [
      ...row,
      metric(champion.metrics[name]?.value),
      { text: signed(change?.value), class: sure ? (better ? "good" : "bad") : "" },
      change ? `${signed(change.low)} to ${signed(change.high)}` : "–",
    ];
  });
  const count = Object.values(evaluation.rows ?? {})[0];
  const split = Object.keys(evaluation.rows ?? {})[0];
  return section(
    "metrics",
    "Metrics",
    table(
      [
        `On ${number(count)} ${split} rows`,
        champion ? ", both models on the same ones" : "",
        evaluation.confidence ? `; intervals of ${number(100 * evaluation.confidence)} %` : "",
      ].join(""),
      heads,
      rows,
      { numeric: [1, 2, 3, 4, 5], showCaption: true },
    ),
  );
}

export function misses(evaluation) {
  const found = evaluation.charts?.misses;
  if (!found?.length) return null;
  const title = "The rows it missed by most";
  const { label } = evaluation.charts;
  const rows = found.map((row) => [
    row.key,
    number(row.label),
    number(row.prediction),
    signed(row.label - row.prediction),
  ]);
  const heads = ["Row's key", `${label}, true`, `${label}, predicted`, "true less predicted"];
  return section("misses", title, table(title, heads, rows, { numeric: [1, 2, 3] }));
}

export function mistakes(evaluation) {
  const found = evaluation.charts?.mistakes;
  if (!found?.rows.length) return null;
  const title = "The surest mistakes";
  const intro = el("p", { class: "quiet" }, "Rows that it got wrong while it was most sure of them.");
  if (!found.shape) {
    const rows = found.rows.map((row) => [row.key, row.label, row.prediction, metric(row.probability)]);
    const heads = ["Row's key", "True", "Predicted", "Its probability"];
    return section("mistakes", title, intro, table(title, heads, rows, { numeric: [3] }));
  }
  return section(
    "mistakes",
    title,
    intro,
    el(
      "ul",
      { class: "mistakes" },
      found.rows.map((row) => {
        const said = `${row.label} taken for ${row.prediction}`;
        return el(
          "li",
          {},
          image(row.pixels, found.shape, said),
          el("div", {}, said),
          el("div", { class: "quiet" }, `probability ${row.probability.toFixed(2)}`),
        );
      }),
    ),
  );
}

function image(pixels, [channels, height, width], alt) {
  const canvas = el("canvas", { width, height, role: "img", "aria-label": alt });
  const context = canvas.getContext("2d");
  const drawn = context.createImageData(width, height);
  const data = Uint8Array.from(atob(pixels), (letter) => letter.charCodeAt(0));
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    for (let channel = 0; channel < 3; channel += 1)
      // One channel is ink: dark on light, as in print.
      drawn.data[4 * pixel + channel] =
        channels === 1 ? 255 - data[pixel] : data[channels * pixel + channel];
    drawn.data[4 * pixel + 3] = 255;
  }
  context.putImageData(drawn, 0, 0);
  return canvas;
}

// The trials of a search, the best ones first.
export function trials(search) {
  if (!search?.trials.length) return null;
  const settings = [...new Set(search.trials.flatMap((trial) => Object.keys(trial.params ?? {})))];
  const rows = search.trials.map((trial) => [
    String(trial.trial),
    TRIAL_STATES[trial.state] ?? trial.state,
    metric(trial.value),
    ...settings.map((name) => setting(trial.params?.[name])),
    duration(trial.seconds),
    { text: trial.cause, class: "text" },
  ]);
  const heads = ["Trial", "How it ended", label(search.metric), ...settings, "Time", "Cause"];
  const caption = `The best ${rows.length} of ${number(search.count)} trials`;
  return section("trials", "Trials", table(caption, heads, rows, { numeric: [2], showCaption: true }));
}

const TRIAL_STATES = { complete: "complete", pruned: "given up early", fail: "failed" };

function setting(value) {
  if (value === undefined) return "–";
  return typeof value === "number" ? number(value) : String(JSON.stringify(value)).replaceAll('"', "");
}

// Pictures that the job drew; open at first where there are no charts.
export function pictures(route, names, isOpen) {
  if (!names.length) return null;
  return el(
    "details",
    { class: "pictures", open: isOpen },
    el("summary", {}, `Pictures of the report (${names.length})`),
    names.map((name) =>
      el("p", {}, el("img", { src: picture(`${route}/pictures/${encodeURIComponent(name)}`), alt: words(name), loading: "lazy" })),
    ),
  );
}

function words(name) {
  return capital(name.replace(".png", "").replaceAll("-", " "));
}
