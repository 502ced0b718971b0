// Follows the theme of Airflow's UI, which it keeps in this origin's storage; else the system's.

const wide = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

function chosen() {
  let kept = null;
  try {
    kept = window.localStorage.getItem("theme");
  } catch {
    // Storage can be forbidden; the system's choice remains.
  }
  return kept === "dark" || kept === "light" ? kept : wide.matches ? "dark" : "light";
}

export function isDark() {
  return document.documentElement.dataset.theme === "dark";
}

export function onTheme(listener) {
  listeners.add(listener);
}

function apply() {
  const theme = chosen();
  if (document.documentElement.dataset.theme === theme) return;
  document.documentElement.dataset.theme = theme;
  for (const listener of listeners) listener();
}

// Airflow's document sets it; this one is told.
window.addEventListener("storage", apply);
wide.addEventListener("change", apply);
apply();
