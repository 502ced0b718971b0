// Tasks of a run: their strip, what runs, and why one failed.

import { airflowPath, path } from "./data.js";
import { alert, el } from "./dom.js";
import { duration, label, metric, number, timeOfDay } from "./format.js";

const MOST_MAPPED = 6;

const kinds = {
  success: "good",
  failed: "bad",
  upstream_failed: "idle",
  up_for_retry: "bad",
  running: "busy",
  deferred: "busy",
  restarting: "busy",
};

const words = {
  success: "done",
  failed: "failed",
  upstream_failed: "not run: an earlier task failed",
  up_for_retry: "will be tried again",
  up_for_reschedule: "waits",
  running: "running",
  deferred: "running",
  restarting: "starts again",
  queued: "queued",
  scheduled: "scheduled",
  skipped: "skipped",
  removed: "removed",
};

export function kindOf(state) {
  return kinds[state] ?? "idle";
}

export function wordOf(state) {
  return words[state] ?? "not started";
}

export function nameOf(stage) {
  return stage.map_index < 0 ? stage.task_id : `${stage.task_id} [${stage.map_index}]`;
}

export function tag(state) {
  return el("span", { class: `tag ${kindOf(state)}` }, wordOf(state));
}

export function taskLog(dag, run, stage, text = "log") {
  const mapped = stage.map_index < 0 ? "" : `/mapped/${stage.map_index}`;
  const route = `dags/${path(dag)}/runs/${path(run)}/tasks/${path(stage.task_id)}${mapped}`;
  return el("a", { href: airflowPath(route), "data-outside": true, target: "_top" }, text);
}

function outside(address, text) {
  return el("a", { href: address, "data-outside": true, target: "_blank", rel: "noopener" }, text);
}

export function strip(stages, now) {
  const parts = [...new Set(stages.map((stage) => stage.task_id))].flatMap((task) => {
    const own = stages.filter((stage) => stage.task_id === task);
    return own.length > MOST_MAPPED ? [folded(task, own)] : own.map((stage) => box(stage, now));
  });
  return el("ol", { class: "stages", "aria-label": "Stages of the run" }, parts);
}

// Many instances of a mapped task as one.
function folded(task, own) {
  const counts = new Map();
  for (const stage of own) counts.set(wordOf(stage.state), (counts.get(wordOf(stage.state)) ?? 0) + 1);
  const kinds = own.map((stage) => kindOf(stage.state));
  const kind =
    ["bad", "busy"].find((each) => kinds.includes(each)) ?? (kinds.includes("idle") ? "idle" : "good");
  const said = [...counts].map(([word, count]) => `${number(count)} ${word}`).join(", ");
  return el(
    "li",
    { class: "stage", "data-kind": kind },
    el("strong", {}, `${task} [${number(own.length)}]`),
    el("p", { class: "state" }, said),
  );
}

function box(stage, now) {
  const kind = kindOf(stage.state);
  const until = stage.end ?? (stage.start && kind === "busy" ? now : null);
  const took = stage.start && until ? duration(until - stage.start) : "";
  const current = stage.progress.at(-1);
  const share =
    current && current.total ? ` ${Math.floor((100 * current.done) / current.total)} %` : "";
  return el(
    "li",
    { class: "stage", "data-kind": kind },
    el("strong", {}, nameOf(stage)),
    el("p", { class: "state" }, `${wordOf(stage.state)}${share}`),
    el("p", {}, kind === "idle" ? "" : [timeOfDay(stage.start), took].filter(Boolean).join(" · ")),
  );
}

// How far the tasks are that run now: one bar for the latest step of each.
export function running(stages) {
  return stages
    .filter((stage) => stage.progress.length)
    .map((stage) => {
      const step = stage.progress.at(-1);
      const figures = Object.entries(step.figures)
        .filter(([, value]) => typeof value === "number")
        .map(([name, value]) => `${label(name)} ${number(value)}`)
        .join(", ");
      const left = step.left === null ? "" : `, about ${duration(step.left)} left`;
      const note = stage.notes.at(-1)?.text;
      const name = step.stage === stage.task_id ? nameOf(stage) : `${nameOf(stage)}: ${step.stage}`;
      return el(
        "div",
        {},
        el(
          "p",
          {},
          el("b", {}, name),
          step.unit === "trial"
            ? `  ${number(step.done)} of ${number(step.total)} trials${left}`
            : `  ${step.unit} ${number(step.done)} of ${number(step.total)}${left}`,
        ),
        el("progress", { max: step.total || 1, value: step.done, "aria-label": name }),
        figures ? el("p", { class: "quiet small" }, figures) : null,
        note ? el("p", { class: "quiet small" }, note) : null,
        stage.spark ? el("p", {}, outside(stage.spark, "Spark's own pages of it")) : null,
      );
    });
}

export function failures(stages, link) {
  return stages
    .filter((stage) => ["failed", "up_for_retry"].includes(stage.state))
    .map((stage) => {
      const known = stage.failure;
      const again = stage.state === "up_for_retry" ? " Airflow will try it again." : "";
      return alert(
        el("p", {}, el("b", {}, `${nameOf(stage)} failed.`), again),
        known ? el("p", {}, el("b", {}, "Cause: "), known.cause) : null,
        known ? el("p", {}, el("b", {}, "Fix: "), known.fix) : null,
        known ? null : el("p", {}, "The task's log says why."),
        el("p", {}, link(stage)),
      );
    });
}

// What came of a task, in a line.
export function outcome(stage) {
  const result = stage.result;
  if (!result) return "";
  const parts = [];
  const rows = result.rows ?? {};
  if (stage.job === "prepare")
    for (const split of ["train", "validation", "test", "holdout"])
      if (rows[split]) parts.push(`${number(rows[split])} ${split} rows`);
  if (stage.job?.startsWith("train_")) {
    const best = result.metrics?.best_epoch ?? result.metrics?.best_round;
    if (best) parts.push(`best ${result.metrics.best_epoch ? "epoch" : "round"} ${number(best)}`);
    if (result.model) parts.push(`${result.model.name} version ${result.model.version}`);
  }
  if (stage.job === "evaluate") {
    parts.push(`${label(result.main)} ${metric(result.metrics?.[result.main]?.value)}`);
  }
  if (stage.job === "tune" && result.best) {
    const { trial, metric: name, value } = result.best;
    const count = Object.values(result.trials ?? {}).reduce((sum, ended) => sum + ended, 0);
    parts.push(`${label(name)} ${metric(value)} by trial ${number(trial)}, the best of ${number(count)}`);
  }
  if (stage.job === "predict" && rows.out !== undefined)
    parts.push(`${number(rows.out)} rows scored by version ${result.model?.version}`);
  return parts.join(", ");
}
