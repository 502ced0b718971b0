// The page of a run: how far it is, its curves, what came of it and why.

import { Curves } from "./curves.js";
import { get, pagePath, path, watch } from "./data.js";
import { alert, el, main, replace, section, table } from "./dom.js";
import { duration, label, metric, moment, signed } from "./format.js";
import * as influence from "./influence.js";
import * as judgement from "./judgement.js";
import * as report from "./report.js";
import * as stages from "./stages.js";
import "./theme.js";

const { dag, run } = document.body.dataset;
const here = `runs/${path(dag, run)}`;
const of = (stage) => `${here}/tasks/${path(stage.task_id, stage.map_index)}`;
const SECONDS = 1.5;
const MOST_CURVES = 6;

const place = {
  trouble: el("div", {}),
  head: el("div", {}),
  strip: el("div", {}),
  failures: el("div", {}),
  answer: el("div", {}),
  running: el("div", {}),
  training: el("div", {}),
  more: el("p", { class: "quiet", hidden: true }),
  report: el("div", {}),
  files: el("div", {}),
};
const curves = new Map();
let reported = null;
let shownLast = "";

main(`Training of ${run}`, ...Object.values(place));
watch(look, SECONDS, trouble);

async function look() {
  const state = await get(here);
  show(state);
  const trained = state.stages.filter((stage) => stage.has_curves);
  const trainings = trained.slice(0, MOST_CURVES);
  const left = trained.length - trainings.length;
  place.more.hidden = !left;
  replace(place.more, `Of ${left} more tasks the curves are in each one's own tab Progress.`);
  for (const stage of trainings) await follow(stage, trainings.length > 1);
  await reportOnce(state);
  return !state.is_over || [...curves.values()].some((known) => known.isPartial);
}

function show(state) {
  const took = state.start ? duration((state.end ?? state.now) - state.start) : "";
  replace(
    place.head,
    el("div", { class: "head" }, el("h1", {}, `Training of ${dag}`), stages.tag(state.state)),
    el("p", { class: "quiet" }, [run, moment(state.start), took].filter(Boolean).join(" · ")),
    state.note ? el("div", { class: "alert mild" }, el("p", {}, state.note)) : null,
  );
  replace(place.strip, stages.strip(state.stages, state.now));
  replace(
    place.failures,
    ...stages.failures(state.stages, (stage) => stages.taskLog(dag, run, stage, "Open the task's log")),
  );
  replace(place.answer, answer(state.evaluation));
  const busy = stages.running(state.stages);
  replace(place.running, busy.length ? section("now", "Now", ...busy) : null);
  if (!state.stages.some((stage) => stage.has_curves)) place.training.replaceChildren(empty(state));
  replace(place.files, files(state));
}

function empty(state) {
  const hasFailed = state.stages.some((stage) => stage.state === "failed");
  const text = state.is_over || hasFailed
    ? "This run has trained nothing."
    : "Curves appear here as soon as the training has done its first step.";
  return section("curves", "Curves", el("p", { class: "quiet" }, text));
}

function answer(evaluation) {
  if (!evaluation?.value) return null;
  const { value, champion, verdict, model } = evaluation;
  const [split, rows] = Object.entries(evaluation.rows ?? {})[0] ?? ["", 0];
  const serves = verdict
    ? verdict.promoted
      ? el("span", { class: "tag good" }, "promoted")
      : el("span", { class: "tag" }, "not promoted")
    : null;
  return el(
    "div",
    { class: "answer" },
    el(
      "p",
      { class: "figure" },
      `${label(evaluation.metric)} on ${rows.toLocaleString("en")} ${split} rows`,
      el("b", {}, metric(value.value)),
      el("span", { class: "quiet" }, `${metric(value.low)} to ${metric(value.high)}`),
    ),
    el(
      "div",
      {},
      el(
        "p",
        {},
        model
          ? el("a", { href: pagePath(`models/${path(model.name)}/versions/${path(model.version)}`) }, `${model.name} version ${model.version}`)
          : null,
        " ",
        serves,
      ),
      el("p", { class: "why" }, verdict ? `The gate said: ${verdict.summary}` : "The gate has not judged it yet."),
      champion?.value
        ? el(
            "p",
            { class: "quiet" },
            `Against the champion of then, version ${champion.version}: ${signed(value.value - champion.value.value)}.`,
          )
        : champion
          ? null
          : el("p", { class: "quiet" }, "There was no champion to compare with."),
    ),
  );
}

async function follow(stage, isOneOfMany) {
  const key = of(stage);
  let known = curves.get(key);
  if (!known) {
    known = { curves: new Curves(), isOver: false, isPartial: false };
    curves.set(key, known);
    if (curves.size === 1) place.training.replaceChildren();
    const title = isOneOfMany ? `Curves of ${stages.nameOf(stage)}` : "Curves";
    const id = `curves-${curves.size}`;
    place.training.append(section(id, title, known.curves.place));
  }
  if (known.isOver) return;
  const question = known.curves.question;
  const found = await get(`${key}/curves?cursor=${encodeURIComponent(question)}`);
  known.curves.take(found);
  known.isPartial = found.is_partial;
  known.isOver = stage.result !== null && !found.is_partial;
}

async function reportOnce(state) {
  const evaluation = state.evaluation;
  const trained = state.stages
    // A search that failed has a report too, which says why of each trial.
    .filter((stage) => stage.has_curves && (stage.result || stage.state === "failed"))
    .slice(0, MOST_CURVES);
  const key = JSON.stringify([evaluation, trained.map(of)]);
  if (key === reported || (!evaluation && !trained.length)) return;
  const parts = [];
  if (evaluation) {
    const route = of(evaluation);
    const { evaluation: found } = await get(`${route}/report`);
    if (found)
      parts.push(
        shown(report.metrics, found),
        shown(report.verdict, found.verdict),
        shown(judgement.charts, found),
        shown(report.mistakes, found),
        shown(report.misses, found),
        report.pictures(route, found.pictures, !found.charts),
      );
  }
  for (const stage of trained) {
    const found = await get(`${of(stage)}/report`);
    parts.push(
      shown(report.trials, found.search),
      shown(influence.influences, found.search),
      shown(influence.importances, found.importances),
      report.pictures(of(stage), found.pictures, stage.job === "tune"),
    );
  }
  reported = key;
  place.report.replaceChildren(...parts.filter((part) => part !== null));
}

// A part of a report; a file that is none, or of another version, must not hide the others.
function shown(make, found) {
  try {
    return make(found);
  } catch {
    return alert(el("p", {}, "A part of the report cannot be read, and is left out."));
  }
}

function files(state) {
  const rows = state.stages.map((stage) => [
    stages.nameOf(stage),
    stages.outcome(stage),
    { text: stage.run_dir ?? "", class: "mono" },
    stages.taskLog(dag, run, stage, "Log"),
  ]);
  return section(
    "files",
    "Results and files",
    table("What came of each task and where it lies", ["Task", "Outcome", "Run directory", "Log"], rows),
  );
}

function trouble(error) {
  const text = error ? String(error.message) : "";
  if (text === shownLast) return;
  shownLast = text;
  const isGone = [401, 403, 404].includes(error?.status);
  place.trouble.replaceChildren(
    ...(error
      ? [alert(el("p", {}, el("b", {}, "Not up to date. "), text, isGone ? "" : " Trying again."))]
      : []),
  );
}
