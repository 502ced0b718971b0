// What a model, or the success of a search's trials, depends on.

import { Chart } from "./charts.js";
import { el, section } from "./dom.js";

export function importances(rows) {
  if (!rows.length) return null;
  const isShap = rows[0].mean_abs_shap !== undefined;
  const by = isShap ? "mean_abs_shap" : "total_gain";
  const axis = isShap ? "mean of the absolute SHAP value" : "total gain";
  return section("importances", "Features", bars("What it goes by", "feature", axis, by, rows));
}

// What good trials of a search differ in from bad ones.
export function influences(search) {
  const rows = Object.entries(search?.importances ?? {})
    .map(([setting, share]) => ({ setting, share }))
    .sort((a, b) => b.share - a.share);
  if (!rows.length) return null;
  const axis = "share of what tells good trials from bad";
  return section("influences", "What matters", bars("Influence of settings", "setting", axis, "share", rows));
}

function bars(title, kind, axis, by, rows) {
  const chart = new Chart(
    title,
    (colours) => ({
      data: [
        {
          type: "bar",
          orientation: "h",
          name: axis,
          y: rows.map((row) => row[kind]),
          x: rows.map((row) => row[by]),
          marker: { color: colours.series[0] },
        },
      ],
      layout: {
        xaxis: { title: axis, rangemode: "tozero" },
        yaxis: { title: kind, autorange: "reversed", type: "category" },
      },
      note: `The strongest is ${rows[0][kind]}.`,
    }),
    () => ({ heads: Object.keys(rows[0]), rows: rows.map((row) => Object.values(row)) }),
    { tall: rows.length > 8, wide: true },
  );
  return el("div", { class: "charts" }, chart.figure);
}
