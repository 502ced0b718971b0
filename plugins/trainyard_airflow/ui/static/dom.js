// Makes elements; text is always text, never markup.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function section(id, title, ...children) {
  return el(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title),
    ...children,
  );
}

// A table whose first cell of a row is its header; a cell is text, an element or {text, class}.
export function table(caption, heads, rows, options = {}) {
  const cell = (tag, value, attributes) => {
    const isPlain = value instanceof Node || typeof value !== "object" || value === null;
    return isPlain
      ? el(tag, attributes, value ?? "")
      : el(tag, { ...attributes, class: value.class }, value.text ?? "");
  };
  const numeric = new Set(options.numeric ?? []);
  const kind = (place) => (numeric.has(place) ? "number" : null);
  const mark = (node, place) => {
    if (kind(place)) node.classList.add("number");
    return node;
  };
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${caption}` },
    el(
      "table",
      {},
      el("caption", { class: options.showCaption ? null : "hidden" }, caption),
      el("thead", {}, el("tr", {}, heads.map((h, i) => mark(el("th", { scope: "col" }, h), i)))),
      el(
        "tbody",
        {},
        rows.map((row) =>
          el(
            "tr",
            {},
            row.map((value, i) =>
              mark(i === 0 ? cell("th", value, { scope: "row" }) : cell("td", value, {}), i),
            ),
          ),
        ),
      ),
    ),
  );
}

export function alert(...children) {
  return el("div", { class: "alert", role: "alert" }, ...children);
}

// Replaces what an element holds, only where it has changed, so that focus and selection stay.
export function replace(element, ...children) {
  const fresh = el("div", {}, ...children);
  if (fresh.innerHTML === element.innerHTML) return false;
  element.replaceChildren(...fresh.childNodes);
  return true;
}

// What is shown of a page that cannot be had; nothing while it can.
export function unless(title) {
  return (error) =>
    error && main(title, el("h1", {}, title), alert(el("p", {}, String(error.message))));
}

export function main(title, ...children) {
  document.title = title;
  const place = document.getElementById("main");
  place.removeAttribute("aria-busy");
  place.replaceChildren(...children.filter((child) => child !== null));
}
