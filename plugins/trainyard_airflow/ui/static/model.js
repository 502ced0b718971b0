// The page of a model: its versions, the newest first, and a choice of two to compare.

import { Chart } from "./charts.js";
import { get, pagePath, path, watch } from "./data.js";
import { el, main, section, table, unless } from "./dom.js";
import { label, metric, moment } from "./format.js";
import { aliasTags, runLink, trail, when } from "./versions.js";
import "./theme.js";

const { model } = document.body.dataset;

watch(look, 60, unless(model));

async function look() {
  const { name, versions } = await get(`models/${path(model)}`);
  main(
    name,
    trail(),
    el("h1", {}, name),
    serving(versions),
    chart(versions),
    compareForm(versions),
    section("versions", "Versions", list(name, versions)),
  );
  return false;
}

function serving(versions) {
  const champion = versions.find((version) => version.aliases.includes("champion"));
  if (!champion) return el("p", {}, "No version serves.");
  const { promoted } = champion;
  return el(
    "p",
    {},
    `Version ${champion.version} serves since ${when(champion)}`,
    promoted?.who ? `, promoted by ${promoted.who}` : "",
    promoted?.why ? `: ${promoted.why}.` : ".",
  );
}

function chart(versions) {
  const shown = [...versions].reverse().filter((version) => version.headline);
  if (shown.length < 2) return null;
  const { metric: name, split } = shown.at(-1).headline;
  const own = shown.filter((version) => version.headline.metric === name);
  const title = `${label(name)} over versions`;
  const drawn = new Chart(
    title,
    (colours) => ({
      data: [
        {
          type: "scatter",
          mode: "lines+markers",
          name: `${label(name)}, ${split} rows`,
          x: own.map((version) => version.version),
          y: own.map((version) => version.headline.value),
          line: { color: colours.series[0], width: 2 },
        },
        {
          type: "scatter",
          mode: "markers",
          name: "has served",
          x: own.filter((v) => v.promoted).map((v) => v.version),
          y: own.filter((v) => v.promoted).map((v) => v.headline.value),
          marker: { color: colours.series[1], size: 12, symbol: "diamond-open", line: { width: 2 } },
        },
      ],
      layout: {
        showlegend: true,
        xaxis: { title: "version", type: "category", nticks: 25 },
        yaxis: { title: label(name) },
      },
      note: `From ${metric(own[0].headline.value)} to ${metric(own.at(-1).headline.value)}${
        own.some((version) => version.promoted) ? "; versions that have served are marked" : ""
      }.`,
    }),
    () => ({
      heads: ["version", name, "has served"],
      rows: own.map((v) => [v.version, v.headline.value, Boolean(v.promoted)]),
    }),
    { wide: true },
  );
  return section("over", "Over versions", el("div", { class: "charts" }, drawn.figure));
}

function compareForm(versions) {
  if (versions.length < 2) return null;
  const champion = versions.find((version) => version.aliases.includes("champion")) ?? versions[1];
  const other = versions.find((version) => version !== champion) ?? versions[0];
  const choice = (name, text, chosen) =>
    el(
      "label",
      {},
      text,
      el(
        "select",
        { name },
        versions.map((version) =>
          el(
            "option",
            { value: version.version, selected: version === chosen },
            `version ${version.version}${version.aliases.length ? ` (${version.aliases.join(", ")})` : ""}`,
          ),
        ),
      ),
    );
  return section(
    "compare",
    "Side by side",
    el(
      "form",
      { class: "row", method: "get", action: pagePath(`models/${path(model)}/compare`) },
      choice("a", "One version", champion),
      choice("b", "Another version", other),
      el("button", { type: "submit" }, "Compare"),
    ),
  );
}

function list(name, versions) {
  const rows = versions.map((version) => [
    el(
      "a",
      { href: pagePath(`models/${path(name)}/versions/${path(version.version)}`) },
      `Version ${version.version}`,
    ),
    el("span", {}, ...aliasTags(version)),
    version.headline
      ? `${label(version.headline.metric)} ${metric(version.headline.value)} (${version.headline.split})`
      : "not judged",
    moment(version.created),
    version.dataset ? version.dataset.slice(0, 12) : "–",
    runLink(version.made_by),
  ]);
  const heads = ["Version", "Use", "Headline", "Made", "Data", "Run"];
  return table(`Versions of ${name}`, heads, rows);
}
