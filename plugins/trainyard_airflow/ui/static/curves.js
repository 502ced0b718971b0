// The curves of a training: training and validation together, the best step marked. Those of a
// search: each trial's value, and the best so far.

import { Chart, curvesTable, plain } from "./charts.js";
import { el, replace, table } from "./dom.js";
import { bytes, capital, label, metric, number } from "./format.js";

const VALIDATION = "validation_";
const BEST = "best_";
const THROUGHPUT = new Set(["rows_per_second", "rounds_per_second"]);
const MOST_POINTS = 4000;

// Charts by what they show: names of curves that share an axis.
function groups(names) {
  const found = new Map();
  for (const name of names) {
    const own = name.startsWith(BEST) && names.includes(name.slice(BEST.length)) ? name.slice(BEST.length) : name;
    const base = own.startsWith(VALIDATION) ? own.slice(VALIDATION.length) : own;
    found.set(base, [...(found.get(base) ?? []), name]);
  }
  const rank = (base) => (base === "loss" ? 0 : THROUGHPUT.has(base) ? 2 : 1);
  return [...found].sort(([a], [b]) => rank(a) - rank(b));
}

export class Curves {
  constructor() {
    this.known = {};
    this.cursor = "";
    this.charts = new Map();
    this.holder = el("div", { class: "charts" });
    this.notice = el("p", { class: "quiet small", role: "status" });
    this.ranks = el("div", {});
    this.place = el("div", {}, this.notice, this.holder, this.ranks);
  }

  // Whether so many points were added that the server should thin them again.
  get question() {
    const points = Object.values(this.known).reduce((sum, [steps]) => Math.max(sum, steps.length), 0);
    return points > MOST_POINTS ? "" : this.cursor;
  }

  take(answer) {
    const isSame =
      !answer.reset && Object.values(answer.curves).every(([steps]) => steps.length === 0);
    if (answer.reset) this.known = answer.curves;
    else {
      for (const [name, [steps, values]] of Object.entries(answer.curves)) {
        const [oldSteps, oldValues] = this.known[name] ?? [[], []];
        this.known[name] = [[...oldSteps, ...steps], [...oldValues, ...values]];
      }
    }
    const isBestSame = this.best === answer.best;
    this.cursor = answer.cursor;
    this.unit = answer.unit;
    this.best = answer.best;
    this.last = answer.last;
    this.resumed = answer.resumed;
    this.say(answer);
    this.showRanks(answer.ranks);
    if (isSame && isBestSame && this.charts.size) return;
    this.show();
  }

  // Names of the curves that have a point: a loss may have been no number from the first step on.
  get drawn() {
    return Object.keys(this.known).filter((name) => this.known[name][1].some((value) => value !== null));
  }

  say(answer) {
    const said = [];
    if (answer.is_partial) said.push("A sample of a long run; the rest is being read.");
    if (!Object.keys(this.known).length) said.push("It has told no figures.");
    else if (!this.drawn.length) said.push("None of its figures is a number.");
    const points = Math.max(0, ...Object.values(this.known).map(([steps]) => steps.length));
    if (!answer.is_partial && points < 0.9 * answer.last)
      said.push(
        `Drawn and saved are ${number(points)} of ${number(answer.last)} ${this.unit}s: the least and the greatest of each stretch.`,
      );
    if (answer.is_damaged) said.push("Some of this run's events cannot be read and are left out.");
    if (this.resumed.length)
      said.push(`Resumed at ${this.unit} ${this.resumed.map((n) => number(n)).join(", ")}.`);
    replace(this.notice, said.join(" "));
    this.notice.hidden = !said.length;
  }

  show() {
    this.groups = new Map(groups(this.drawn));
    for (const [base, names] of this.groups) {
      const old = this.charts.get(base);
      if (old) {
        old.draw();
        continue;
      }
      const chart = new Chart(
        THROUGHPUT.has(base) ? "Throughput" : label(this.isSearch ? names[0] : base),
        (colours) => this.spec(base, colours),
        () =>
          curvesTable(
            this.isSearch ? "trials ended" : this.unit,
            Object.fromEntries(this.groups.get(base).map((name) => [name, this.known[name]])),
          ),
      );
      this.charts.set(base, chart);
      this.holder.append(chart.figure);
    }
  }

  spec(base, colours) {
    const isThroughput = THROUGHPUT.has(base);
    const names = this.groups.get(base);
    const data = names.map((name) => {
      const [steps, values] = this.known[name];
      return {
        type: "scatter",
        mode: steps.length < 3 ? "lines+markers" : "lines",
        x: steps,
        y: values,
        hovertemplate: `${plain(this.unit)} %{x}: %{y:.5g}<extra>%{fullData.name}</extra>`,
        ...this.line(name, isThroughput, colours),
      };
    });
    const across = (x, line) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line });
    const shapes = this.resumed.map((step) =>
      across(step - 0.5, { color: colours.quiet, width: 1, dash: "dash" }),
    );
    const annotations = [];
    const judged = names.find((name) => name.startsWith(VALIDATION)) ?? names[0];
    const [steps, values] = this.known[judged];
    const at = steps.indexOf(this.best);
    if (this.best && !isThroughput) {
      shapes.push(across(this.best, { color: colours.quiet, width: 1 }));
      annotations.push({
        x: this.best,
        yref: "paper",
        y: 0.5,
        xanchor: this.best > this.last / 2 ? "right" : "left",
        text: ` best: ${this.step(this.best)} `,
        showarrow: false,
        font: { color: colours.quiet, size: 12 },
        bgcolor: colours.ground,
      });
    }
    const now = values.at(-1);
    const reached = this.known[names.find((name) => name.startsWith(BEST)) ?? judged][1].at(-1);
    const best = at >= 0 && !isThroughput ? `${metric(values[at])} at the best ${this.unit}; ` : "";
    const last = isThroughput ? `${number(now)} rows per second` : metric(now);
    return {
      data,
      layout: {
        showlegend: true,
        xaxis: {
          title: this.isSearch ? "Trials that have ended" : capital(this.unit),
          ...(this.last < 12 ? { dtick: 1 } : {}),
        },
        yaxis: {
          title: isThroughput ? "rows per second, all ranks" : label(this.isSearch ? judged : base),
          ...(isThroughput ? { rangemode: "tozero" } : {}),
        },
        shapes,
        annotations,
      },
      note: this.isSearch
        ? `${label(judged)}: ${metric(reached)} by the best of ${number(this.last)} trials.`
        : `${label(judged)}: ${best}${last} at ${this.step(this.last)}.`,
    };
  }

  // How one curve of a chart is drawn.
  line(name, isThroughput, colours) {
    if (this.isSearch)
      return name.startsWith(BEST)
        ? { name: "Best so far", mode: "lines", line: { color: colours.series[2], width: 2.25, shape: "hv" } }
        : { name: "Each trial", mode: "markers", marker: { color: colours.series[0], size: 8 } };
    const isValidation = name.startsWith(VALIDATION);
    return {
      name: isThroughput ? label(name) : isValidation ? "Validation" : "Training",
      line: {
        color: colours.series[isValidation ? 1 : 0],
        width: isValidation ? 2.25 : 1.75,
        dash: isValidation || isThroughput ? "solid" : "dot",
      },
    };
  }

  get isSearch() {
    return this.unit === "trial";
  }

  step(place) {
    return this.isSearch ? `after ${number(place)} trials` : `${this.unit} ${number(place)}`;
  }

  showRanks(ranks) {
    if (!ranks) return;
    const rows = ranks.memory.map((memory, rank) => [
      `Rank ${rank}`,
      number(ranks.rows_per_second[rank]),
      bytes(memory),
    ]);
    replace(
      this.ranks,
      el("h3", {}, "Ranks"),
      table(
        `Each rank, at ${this.unit} ${number(ranks.step)}`,
        ["Rank", "Rows per second", "Memory"],
        rows,
        { numeric: [1, 2], showCaption: true },
      ),
    );
  }
}
