// The charts behind an evaluation.

import { Chart } from "./charts.js";
import { el, section } from "./dom.js";
import { capital, label, metric, number } from "./format.js";

export function charts(evaluation) {
  const data = evaluation.charts;
  if (!data) return null;
  const made = [];
  if (data.confusion) made.push(confusion(data));
  if (data.curves?.length) {
    made.push(curve(data, "roc", "ROC", "False positive rate", "True positive rate"));
    made.push(
      curve(data, "precision_recall", "Precision and recall", "Recall", "Precision"),
    );
  }
  if (data.calibration) made.push(calibration(data));
  if (data.residuals) made.push(...residuals(data));
  made.push(...slices(evaluation));
  return made.length
    ? section("charts", "How it judges", el("div", { class: "charts" }, made.map((c) => c.figure)))
    : null;
}

function confusion(data) {
  const { classes, confusion: counts } = data;
  const shares = counts.map((row) => {
    const sum = row.reduce((a, b) => a + b, 0);
    return row.map((count) => (sum ? count / sum : 0));
  });
  const wrong = counts.flatMap((row, i) => row.filter((_, j) => i !== j)).reduce((a, b) => a + b, 0);
  const isSmall = classes.length <= 20;
  return new Chart(
    "Confusion matrix",
    (colours) => ({
      data: [
        {
          type: "heatmap",
          z: shares,
          x: classes,
          y: classes,
          customdata: counts,
          text: counts.map((row) => row.map((count) => (count ? String(count) : ""))),
          texttemplate: isSmall ? "%{text}" : "",
          colorscale: colours.scale,
          zmin: 0,
          zmax: 1,
          colorbar: { title: { text: "share of the true class", side: "right" }, thickness: 10 },
          hovertemplate: "true %{y}, predicted %{x}: %{customdata} rows<extra></extra>",
        },
      ],
      layout: {
        xaxis: { title: `predicted ${data.label}`, type: "category" },
        yaxis: { title: `true ${data.label}`, type: "category", autorange: "reversed" },
      },
      note: `${number(wrong)} of ${number(data.rows)} rows lie off the diagonal.`,
    }),
    () => ({
      heads: ["true \\ predicted", ...classes],
      rows: counts.map((row, i) => [classes[i], ...row]),
    }),
    { tall: true },
  );
}

function diagonal(name, colours) {
  return {
    type: "scatter",
    mode: "lines",
    name,
    x: [0, 1],
    y: [0, 1],
    line: { color: colours.quiet, dash: "dash", width: 1 },
    hoverinfo: "skip",
  };
}

function curve(data, kind, title, x, y) {
  const lines = data.curves;
  const worst = lines.reduce((a, b) => (a[kind].area < b[kind].area ? a : b));
  const of = data.positive ? `${data.label} = ${data.positive}` : `each ${data.label} against the rest`;
  return new Chart(
    title,
    (colours) => ({
      data: [
        ...(kind === "roc" ? [diagonal("chance (0.500)", colours)] : []),
        ...lines.map((line, place) => ({
          type: "scatter",
          mode: "lines",
          name: `${line.name} (${line[kind].area.toFixed(3)})`,
          x: line[kind].x,
          y: line[kind].y,
          line: {
            color: colours.series[place % colours.series.length],
            width: 2,
            dash: ["solid", "dash", "dot"][Math.floor(place / colours.series.length)],
          },
        })),
      ],
      layout: {
        showlegend: true,
        xaxis: { title: x, range: [-0.02, 1.02] },
        yaxis: { title: y, range: [-0.02, 1.02] },
      },
      note: `Of ${of}; the area under each in its name. The least is ${worst[kind].area.toFixed(3)}, of ${worst.name}.`,
    }),
    () => ({
      heads: ["line", x, y],
      rows: lines.flatMap((line) => line[kind].x.map((value, i) => [line.name, value, line[kind].y[i]])),
    }),
    { tall: true },
  );
}

function calibration(data) {
  const models = Object.entries(data.calibration);
  const of = data.positive ? `${data.label} = ${data.positive}` : "its prediction";
  return new Chart(
    "Calibration",
    (colours) => ({
      data: [
        diagonal("perfect", colours),
        ...models.map(([name, bins], place) => ({
          type: "scatter",
          mode: "lines+markers",
          name: capital(name),
          x: bins.confidence,
          y: bins.share,
          customdata: bins.rows,
          line: { color: colours.series[place], width: 2, dash: place ? "dot" : "solid" },
          marker: { symbol: place ? "square" : "circle", size: 7 },
          hovertemplate: "says %{x:.3f}, true for %{y:.3f} of %{customdata} rows<extra></extra>",
        })),
      ],
      layout: {
        showlegend: true,
        xaxis: { title: `mean probability of ${of}`, range: [-0.02, 1.02] },
        yaxis: { title: "share for which it is true", range: [-0.02, 1.02] },
      },
      note: "On the dashed line a model is as often right as it says.",
    }),
    () => ({
      heads: ["model", "probability", "share", "rows"],
      rows: models.flatMap(([name, bins]) =>
        bins.confidence.map((value, i) => [name, value, bins.share[i], bins.rows[i]]),
      ),
    }),
    { tall: true },
  );
}

function residuals(data) {
  const { predicted, residual, mean, histogram } = data.residuals;
  const centres = histogram.rows.map((_, i) => (histogram.edges[i] + histogram.edges[i + 1]) / 2);
  return [
    new Chart(
      "Residuals",
      (colours) => ({
        data: [
          {
            type: "scatter",
            mode: "markers",
            name: "rows",
            x: predicted,
            y: residual,
            marker: { color: colours.series[0], size: 4, opacity: 0.5 },
          },
          {
            type: "scatter",
            mode: "lines",
            name: `mean ${number(mean)}`,
            x: [Math.min(...predicted), Math.max(...predicted)],
            y: [mean, mean],
            line: { color: colours.series[1], dash: "dash" },
          },
        ],
        layout: {
          showlegend: true,
          xaxis: { title: `predicted ${data.label}` },
          yaxis: { title: `true minus predicted ${data.label}` },
        },
        note: `${number(predicted.length)} of ${number(data.rows)} rows.`,
      }),
      () => ({
        heads: ["predicted", "residual"],
        rows: predicted.map((value, i) => [value, residual[i]]),
      }),
    ),
    new Chart(
      "How residuals are distributed",
      (colours) => ({
        data: [
          {
            type: "bar",
            name: "rows",
            x: centres,
            y: histogram.rows,
            marker: { color: colours.series[0] },
          },
        ],
        layout: {
          bargap: 0.05,
          xaxis: { title: `true minus predicted ${data.label}` },
          yaxis: { title: "rows" },
        },
        note: `Their mean is ${number(mean)}.`,
      }),
      () => ({ heads: ["residual", "rows"], rows: centres.map((c, i) => [c, histogram.rows[i]]) }),
    ),
  ];
}

const MOST_BARS = 25;

function slices(evaluation) {
  const name = evaluation.main;
  return Object.entries(evaluation.slices ?? {}).map(([column, parts]) => {
    const shown = Object.entries(parts).slice(0, MOST_BARS);
    const more = Object.keys(parts).length - shown.length;
    const bars = (role, find, colours, place) => {
      const values = shown.map(([, part]) => find(part)?.[name] ?? {});
      return {
        type: "scatter",
        mode: "markers",
        name: role,
        y: shown.map(([value, part]) => `${value} (${number(part.rows)})`),
        x: values.map((value) => value.value ?? null),
        error_x: {
          type: "data",
          symmetric: false,
          array: values.map((value) => value.high - value.value),
          arrayminus: values.map((value) => value.value - value.low),
          thickness: 1.5,
          width: 4,
        },
        marker: { color: colours.series[place], size: 8, symbol: place ? "square-open" : "circle" },
      };
    };
    const overall = evaluation.metrics[name].value;
    return new Chart(
      `${label(name)} by ${column}`,
      (colours) => ({
        data: [
          bars("This model", (part) => part.metrics, colours, 0),
          ...(shown.some(([, part]) => part.champion)
            ? [bars("Champion", (part) => part.champion, colours, 1)]
            : []),
        ],
        layout: {
          showlegend: true,
          xaxis: { title: `${label(name)}, with its interval` },
          yaxis: { title: column, autorange: "reversed", type: "category" },
          shapes: [
            {
              type: "line",
              x0: overall,
              x1: overall,
              yref: "paper",
              y0: 0,
              y1: 1,
              line: { color: colours.quiet, dash: "dash", width: 1 },
            },
          ],
        },
        note: `The dashed line is all rows: ${metric(overall)}. Rows of each value in brackets.${
          more > 0 ? ` ${number(more)} smaller values are left out.` : ""
        }`,
      }),
      () => ({
        heads: [column, "rows", name, "low", "high"],
        rows: Object.entries(parts).map(([value, part]) => {
          const found = part.metrics[name] ?? {};
          return [value, part.rows, found.value, found.low, found.high];
        }),
      }),
      { tall: shown.length > 8, wide: shown.length > 8 },
    );
  });
}
