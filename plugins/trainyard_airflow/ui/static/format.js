// Numbers, times and names as readers expect them; a dash for what is none.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value, digits = 4) {
  if (typeof value !== "number" || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return grouped.format(value);
  const text = value.toPrecision(digits);
  return text.includes("e") ? text : String(Number(text));
}

// A share with the same number of decimals everywhere, so that columns line up.
export function metric(value) {
  if (typeof value !== "number") return "–";
  return Math.abs(value) < 10 ? value.toFixed(4) : number(value, 5);
}

export function signed(value) {
  if (typeof value !== "number") return "–";
  const text = metric(Math.abs(value));
  return Number(text) === 0 ? text : (value > 0 ? "+" : "−") + text;
}

export function duration(seconds) {
  if (typeof seconds !== "number") return "";
  const whole = Math.max(0, Math.round(seconds));
  const two = (part) => String(part).padStart(2, "0");
  if (whole < 60) return `${whole}\u00a0s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)}\u00a0min`;
  return `${Math.floor(whole / 3600)}:${two(Math.floor((whole % 3600) / 60))}\u00a0h`;
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const day = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "short",
  hourCycle: "h23",
});

export function timeOfDay(seconds) {
  return seconds ? clock.format(new Date(seconds * 1000)) : "";
}

export function moment(seconds) {
  return seconds ? day.format(new Date(seconds * 1000)) : "";
}

export function bytes(count) {
  if (!count) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log(count) / Math.log(1000)), units.length - 1);
  return `${number(count / 1000 ** power, 3)} ${units[power]}`;
}

const names = {
  roc_auc: "ROC AUC",
  pr_auc: "PR AUC",
  f1: "F1",
  macro_f1: "Macro F1",
  rmse: "RMSE",
  mse: "MSE",
  mae: "MAE",
  r2: "R²",
  log_loss: "Log loss",
  brier: "Brier score",
};

export function capital(text) {
  return String(text).charAt(0).toUpperCase() + String(text).slice(1);
}

// "validation_roc_auc" as "Validation ROC AUC".
export function label(given) {
  const name = String(given ?? "–");
  for (const split of ["validation_", "test_", "train_", "holdout_"]) {
    if (name.startsWith(split)) {
      const rest = label(name.slice(split.length));
      const plain = names[name.slice(split.length)] ?? rest.charAt(0).toLowerCase() + rest.slice(1);
      return `${capital(split.slice(0, -1))} ${plain}`;
    }
  }
  if (names[name]) return names[name];
  return capital(name.replaceAll("_at_", "@").replaceAll("_", " "));
}
