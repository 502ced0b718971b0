// What pages of models share.

import { airflowPath, pagePath, path } from "./data.js";
import { el } from "./dom.js";
import { label, metric, moment } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

// The way here: all models, and the one that a page is of a part of.
export function trail(model) {
  return el(
    "nav",
    { "aria-label": "Where this is" },
    el("a", { href: pagePath("models") }, "Models"),
    model ? [" / ", el("a", { href: pagePath(`models/${path(model)}`) }, model)] : null,
  );
}

export function when(version) {
  const promoted = version.promoted?.when;
  return moment(promoted ? Date.parse(promoted) / 1000 : version.created);
}

export function aliasTags(version) {
  const servesFirst = [...version.aliases].sort((a) => (a === "champion" ? -1 : 1));
  const tags = servesFirst.map((alias) =>
    el("span", { class: alias === "champion" ? "tag good" : "tag" }, alias),
  );
  if (version.is_previous) tags.push(el("span", { class: "tag" }, "champion before"));
  return tags.flatMap((tag) => [tag, " "]);
}

export function runLink(made) {
  if (!made) return "outside of Airflow's runs";
  return el(
    "a",
    {
      href: airflowPath(`dags/${path(made.dag_id)}/runs/${path(made.run_id)}/plugin/training`),
      "data-outside": true,
      target: "_top",
    },
    `${made.dag_id}, ${made.run_id}`,
  );
}

// A small line of the headline metric over versions, the oldest first; words say the same.
export function trend(versions) {
  const points = [...versions].reverse().filter((version) => version.headline);
  if (!points.length) return "–";
  const values = points.map((version) => version.headline.value);
  const name = label(points[0].headline.metric);
  const said = `${name} from ${metric(values[0])} to ${metric(values.at(-1))} over ${values.length} versions`;
  if (values.length < 2) return metric(values[0]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const at = values.map((value, i) => {
    const x = 3 + (94 * i) / (values.length - 1);
    return `${x.toFixed(1)},${(25 - 22 * (high > low ? (value - low) / (high - low) : 0.5)).toFixed(1)}`;
  });
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({
    viewBox: "0 0 100 28",
    width: "100",
    height: "28",
    role: "img",
    "aria-label": said,
    class: "trend",
  }))
    svg.setAttribute(key, value);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", at.join(" "));
  const dot = document.createElementNS(SVG, "circle");
  const [x, y] = at.at(-1).split(",");
  for (const [key, value] of Object.entries({ cx: x, cy: y, r: "2.5" })) dot.setAttribute(key, value);
  svg.append(line, dot);
  return svg;
}
