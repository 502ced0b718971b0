// Two versions side by side: what differs in how they were made, and in what came of it.

import { Chart, curvesTable } from "./charts.js";
import { get, path, watch } from "./data.js";
import { el, main, section, table, unless } from "./dom.js";
import { capital, label, metric, moment, signed } from "./format.js";
import { runLink, trail } from "./versions.js";
import "./theme.js";

const { model } = document.body.dataset;
const asked = new URLSearchParams(window.location.search);
const title = `${model}: versions ${asked.get("a")} and ${asked.get("b")}`;

watch(look, 2, unless(title));

async function look() {
  const shown = await get(`models/${path(model)}/compare?${asked}`);
  const { a, b } = shown;
  main(
    title,
    trail(model),
    el("h1", {}, `Version ${a.version} and version ${b.version} of ${model}`),
    section("made", "How they were made", made(a, b)),
    section("parameters", "Parameters that differ", parameters(shown)),
    section("metrics", "Metrics", metrics(a, b)),
    curves(a, b),
  );
  return Boolean(a.curves?.is_partial || b.curves?.is_partial);
}

function made(a, b) {
  const rows = [
    ["Made", moment(a.created), moment(b.created)],
    ["Run", runLink(a.made_by), runLink(b.made_by)],
    ["Data", a.dataset?.slice(0, 12) ?? "–", b.dataset?.slice(0, 12) ?? "–"],
    ["Use", a.aliases.join(", ") || "–", b.aliases.join(", ") || "–"],
  ];
  return table("How they were made", ["Origin", `Version ${a.version}`, `Version ${b.version}`], rows);
}

function parameters({ a, b, differing }) {
  if (!differing.length) return el("p", { class: "quiet" }, "None: they were made with the same settings.");
  const rows = differing.map((row) => [row.name, row.a ?? "not set", row.b ?? "not set"]);
  return table("Parameters that differ", ["Setting", `Version ${a.version}`, `Version ${b.version}`], rows);
}

function metrics(a, b) {
  const judged = [a, b].map((version) => version.evaluation?.metrics);
  const values = (found) =>
    Object.fromEntries(Object.entries(found).map(([name, { value }]) => [name, value]));
  const [one, other] = judged.every(Boolean) ? judged.map(values) : [a.metrics, b.metrics];
  const names = Object.keys(one).filter((name) => name in other);
  const rows = names.map((name) => [
    label(name),
    metric(one[name]),
    metric(other[name]),
    signed(other[name] - one[name]),
  ]);
  const caption =
    a.dataset === b.dataset
      ? "Both on the same data"
      : "Each on its own data: they differ, so that a difference may be the data's";
  return table(
    caption,
    ["Metric", `Version ${a.version}`, `Version ${b.version}`, "Difference"],
    rows,
    { numeric: [1, 2, 3], showCaption: true },
  );
}

function curves(a, b) {
  const [one, other] = [a.curves?.curves ?? {}, b.curves?.curves ?? {}];
  const names = Object.keys(one).filter((name) => name in other && !name.endsWith("_per_second"));
  if (!names.length) return null;
  const rank = (name) => (name === "validation_loss" ? 0 : name.startsWith("validation_") ? 1 : 2);
  names.sort((x, y) => rank(x) - rank(y));
  const unit = a.curves.unit;
  const charts = names.map(
    (name) =>
      new Chart(
        label(name),
        (colours) => ({
          data: [
            [a, one, 0, "solid"],
            [b, other, 1, "dash"],
          ].map(([version, known, place, dash]) => ({
            type: "scatter",
            mode: "lines",
            name: `Version ${version.version}`,
            x: known[name][0],
            y: known[name][1],
            line: { color: colours.series[place], width: 2, dash },
          })),
          layout: {
            showlegend: true,
            xaxis: { title: capital(unit) },
            yaxis: { title: label(name) },
          },
          note: `At the end ${metric(one[name][1].at(-1))} and ${metric(other[name][1].at(-1))}.`,
        }),
        () =>
          curvesTable(unit, {
            [`version ${a.version}`]: one[name],
            [`version ${b.version}`]: other[name],
          }),
      ),
  );
  return section("curves", "Curves", el("div", { class: "charts" }, charts.map((c) => c.figure)));
}
