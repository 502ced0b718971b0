// Asks the plugin's own routes, and goes on asking while there may be more to see.

const { root, airflow } = document.body.dataset;

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function path(...parts) {
  return parts.map(encodeURIComponent).join("/");
}

export async function get(route) {
  const answer = await fetch(`${root}/api/${route}`, {
    headers: { accept: "application/json" },
    credentials: "same-origin",
  });
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, body.detail ?? `The server answers ${answer.status}.`);
  }
  return answer.json();
}

export function pagePath(route) {
  return `${root}/${route}`;
}

export function picture(route) {
  return `${root}/api/${route}`;
}

// An address of Airflow's own UI.
export function airflowPath(route) {
  return `${airflow}/${route}`;
}

// Calls `look` now and every `seconds` until it answers false; slower while the page is not seen.
export async function watch(look, seconds, onTrouble) {
  for (;;) {
    try {
      const goesOn = await look();
      onTrouble(null);
      if (!goesOn) return;
    } catch (error) {
      onTrouble(error);
      if (error instanceof Refused && [401, 403, 404].includes(error.status)) return;
    }
    await pause(seconds);
  }
}

async function pause(seconds) {
  await new Promise((done) => setTimeout(done, seconds * 1000));
  while (document.hidden) {
    await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  }
}

// Airflow shows the pages in a frame that may not open others: a link that leads out of it is
// followed by the document around it.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-outside]");
  if (!link || window.parent === window) return;
  event.preventDefault();
  const outer = window.parent.document;
  const copy = outer.createElement("a");
  copy.href = link.href;
  if (link.target === "_blank" || event.ctrlKey || event.metaKey) {
    copy.target = "_blank";
    copy.rel = "noopener";
  }
  outer.body.append(copy);
  copy.click();
  copy.remove();
});
