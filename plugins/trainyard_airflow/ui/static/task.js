// The page of a task: how far it is, or why it failed, or what came of it.

import { Curves } from "./curves.js";
import { get, pagePath, path, watch } from "./data.js";
import { alert, el, main, replace, section } from "./dom.js";
import { duration, moment } from "./format.js";
import * as stages from "./stages.js";
import "./theme.js";

const { dag, run, task, map } = document.body.dataset;
const here = `runs/${path(dag, run)}/tasks/${path(task, map)}`;
const place = { head: el("div", {}), body: el("div", {}), curves: el("div", {}) };
let curves = null;

main(`Progress of ${task}`, ...Object.values(place));
watch(look, 2, trouble);

async function look() {
  const stage = await get(here);
  const took = stage.start && stage.end ? duration(stage.end - stage.start) : "";
  replace(
    place.head,
    el("div", { class: "head" }, el("h1", {}, stages.nameOf(stage)), stages.tag(stage.state)),
    el("p", { class: "quiet" }, [moment(stage.start), took].filter(Boolean).join(" · ")),
  );
  const busy = stages.running([stage]);
  const done = stages.outcome(stage);
  const failed = stages.failures([stage], () => el("span", {}, "The tab Logs has the whole story."));
  const nothing = !busy.length && !done && !failed.length;
  replace(
    place.body,
    ...failed,
    ...busy,
    done ? el("p", {}, done) : null,
    nothing ? el("p", { class: "quiet" }, emptyText(stage)) : null,
    stage.run_dir ? el("p", { class: "mono quiet" }, stage.run_dir) : null,
    el("p", {}, el("a", { href: pagePath(`runs/${path(dag, run)}`) }, "The whole run")),
  );
  if (!stage.has_curves) return !stage.is_over;
  if (!curves) {
    curves = new Curves();
    place.curves.replaceChildren(section("curves", "Curves", curves.place));
  }
  const found = await get(`${here}/curves?cursor=${encodeURIComponent(curves.question)}`);
  curves.take(found);
  return !stage.is_over || found.is_partial;
}

function emptyText(stage) {
  if (stages.kindOf(stage.state) === "busy") return "It runs, and has reported nothing yet.";
  if (stage.is_over) return "It is no job of Trainyard's, or has reported nothing.";
  return "It has not started yet.";
}

function trouble(error) {
  if (!error) return;
  replace(place.head, alert(el("p", {}, String(error.message))));
}
