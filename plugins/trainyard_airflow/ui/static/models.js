// The page of all models: which version of each serves, and how versions have gone.

import { get, pagePath, path, watch } from "./data.js";
import { el, main, table, unless } from "./dom.js";
import { label, metric } from "./format.js";
import { trend, when } from "./versions.js";
import "./theme.js";

watch(look, 60, unless("Models"));

async function look() {
  const { models } = await get("models");
  main("Models", el("h1", {}, "Models"), models.length ? list(models) : empty());
  return false;
}

function empty() {
  return el(
    "p",
    { class: "quiet" },
    "No model is registered yet. A training registers one; its run's tab Training shows it meanwhile.",
  );
}

function list(models) {
  const rows = models.map((model) => {
    const at = (alias) => model.versions.find((version) => version.aliases.includes(alias));
    const [champion, challenger] = [at("champion"), at("challenger")];
    const headline = champion?.headline ?? model.versions[0].headline;
    return [
      el("a", { href: pagePath(`models/${path(model.name)}`) }, model.name),
      champion ? versionLink(model.name, champion) : "none serves",
      headline && champion?.headline ? `${label(headline.metric)} ${metric(champion.headline.value)}` : "–",
      champion ? when(champion) : "–",
      challenger && challenger !== champion ? versionLink(model.name, challenger) : "–",
      String(model.versions.length),
      trend(model.versions),
    ];
  });
  const heads = ["Model", "Champion", "Its headline", "Serves since", "Challenger", "Versions", "Over versions"];
  return table("Models", heads, rows, { numeric: [5] });
}

function versionLink(name, version) {
  return el(
    "a",
    { href: pagePath(`models/${path(name)}/versions/${path(version.version)}`) },
    `version ${version.version}`,
  );
}

