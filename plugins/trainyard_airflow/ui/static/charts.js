// Figures: a chart with axes, units and a legend that can be kept as PNG or CSV.
// The library is asked for when the first chart comes into sight, so that text never waits for it.

import { el } from "./dom.js";
import { isDark, onTheme } from "./theme.js";

const themes = {
  light: {
    text: "#1d2433",
    quiet: "#4d5a75",
    line: "#dfe4ee",
    ground: "#ffffff",
    series: ["#1f5fae", "#b4500b", "#2f7d32", "#7b3fa0", "#a3304f", "#0f766e"],
    scale: [
      [0, "#ffffff"],
      [1, "#1f5fae"],
    ],
  },
  dark: {
    text: "#edf0f6",
    quiet: "#b3bed3",
    line: "#3a465c",
    ground: "#141b29",
    series: ["#7fb4f5", "#f2a65a", "#7ccf80", "#cba0ea", "#f08ba5", "#5fd0c3"],
    scale: [
      [0, "#141b29"],
      [1, "#4f93e6"],
    ],
  },
};

export function palette() {
  return themes[isDark() ? "dark" : "light"];
}

// The library takes texts for markup: names of classes, metrics and columns are none.
export function plain(value) {
  if (typeof value === "string")
    return value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  // A template of what is shown under the pointer is markup, made here.
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, key === "hovertemplate" ? inner : plain(inner)]),
  );
}

let loading = null;

export function library() {
  loading ??= new Promise((done, failed) => {
    const script = el("script", { src: document.body.dataset.plotly });
    script.addEventListener("load", () => done(window.Plotly));
    script.addEventListener("error", () => failed(new Error("The charts cannot be drawn.")));
    document.head.append(script);
  });
  return loading;
}

const drawn = new Set();
onTheme(() => drawn.forEach((chart) => chart.draw()));

const near = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      entry.target.chart.appear();
    }
  },
  { rootMargin: "300px" },
);

window.addEventListener("beforeprint", () => {
  for (const { chart } of document.querySelectorAll(".plot")) if (!chart.isVisible) chart.appear();
});

// A chart in a figure. `spec(palette)` gives {data, layout, note, alt}; `table()` gives
// {heads, rows} for the CSV file.
export class Chart {
  constructor(title, spec, table, options = {}) {
    this.title = title;
    this.spec = spec;
    this.table = table;
    this.isVisible = false;
    this.plot = el("div", { class: options.tall ? "plot tall" : "plot", role: "img" });
    this.plot.chart = this;
    this.note = el("p", {});
    const save = (kind, act) =>
      el("button", { type: "button", "aria-label": `${title}: save as ${kind}`, onclick: act }, kind);
    this.figure = el(
      "figure",
      { class: options.wide ? "wide" : null },
      el(
        "figcaption",
        {},
        el("h3", {}, title),
        el(
          "span",
          { class: "tools" },
          save("PNG", () => this.savePicture()),
          save("CSV", () => this.saveTable()),
        ),
      ),
      this.plot,
      this.note,
    );
    this.describe();
    near.observe(this.plot);
  }

  describe() {
    const { note, alt } = this.spec(palette());
    this.note.textContent = note ?? "";
    this.note.hidden = !note;
    this.plot.setAttribute("aria-label", `${this.title}. ${alt ?? note ?? ""}`);
  }

  async appear() {
    this.isVisible = true;
    drawn.add(this);
    await this.draw();
  }

  async draw() {
    this.describe();
    if (!this.isVisible) return;
    const colours = palette();
    const { data, layout } = this.spec(colours);
    const Plotly = await library();
    await Plotly.react(this.plot, plain(data), plain(style(layout, colours)), {
      displayModeBar: false,
      responsive: true,
    });
  }

  async savePicture() {
    this.isVisible || (await this.appear());
    const Plotly = await library();
    await Plotly.downloadImage(this.plot, {
      format: "png",
      width: 1200,
      height: 700,
      filename: fileName(this.title),
    });
  }

  saveTable() {
    const { heads, rows } = this.table();
    const cell = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = [heads, ...rows].map((row) => row.map(cell).join(","));
    const file = new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" });
    const link = el("a", { href: URL.createObjectURL(file), download: `${fileName(this.title)}.csv` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
}

function fileName(title) {
  return title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "");
}

function style(layout, colours) {
  const axis = (given) => ({
    gridcolor: colours.line,
    zerolinecolor: colours.line,
    linecolor: colours.line,
    tickcolor: colours.line,
    automargin: true,
    ...given,
    title: { text: given?.title ?? "", standoff: 8, font: { size: 12, color: colours.quiet } },
  });
  return {
    margin: { l: 52, r: 12, t: 8, b: 44 },
    paper_bgcolor: colours.ground,
    plot_bgcolor: colours.ground,
    font: {
      family: 'Inter, -apple-system, BlinkMacSystemFont, "Segoe UI", Helvetica, Arial, sans-serif',
      size: 12,
      color: colours.text,
    },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } },
    hovermode: "closest",
    hoverlabel: { bgcolor: colours.ground, bordercolor: colours.line, font: { color: colours.text } },
    dragmode: false,
    colorway: colours.series,
    uirevision: "kept",
    ...layout,
    xaxis: axis({ fixedrange: true, ...layout.xaxis }),
    yaxis: axis({ fixedrange: true, ...layout.yaxis }),
    ...(layout.yaxis2 ? { yaxis2: axis({ fixedrange: true, ...layout.yaxis2 }) } : {}),
  };
}

// Rows of a CSV file for curves with steps of their own: a line for each step.
export function curvesTable(unit, curves) {
  const names = Object.keys(curves);
  const lines = new Map();
  names.forEach((name, place) => {
    const [steps, values] = curves[name];
    steps.forEach((step, i) => {
      if (!lines.has(step)) lines.set(step, Array(names.length).fill(null));
      lines.get(step)[place] = values[i];
    });
  });
  const rows = [...lines].sort((a, b) => a[0] - b[0]).map(([step, values]) => [step, ...values]);
  return { heads: [unit, ...names], rows };
}
