// How numbers and names are written.

export function percent(p) {
  if (p === null || p === undefined) return "–";
  if (p > 0.99) return "over 99%";
  if (p < 0.01) return "under 1%";
  return `${evenly(100 * p)}%`;
}

// The library rounds a tie to the even neighbour; the page has to agree with it.
function evenly(value) {
  const low = Math.floor(value);
  if (value - low === 0.5) return low % 2 === 0 ? low : low + 1;
  return Math.round(value);
}

export function interval(lower, upper) {
  if (lower === null || upper === null) return "not known";
  return `${evenly(100 * lower)}% to ${evenly(100 * upper)}%`;
}

export function difference(p, without) {
  if (p === null || without === null) return "–";
  const points = evenly(100 * (p - without));
  const sign = points > 0 ? "+" : points < 0 ? "−" : "±";
  const size = Math.abs(points);
  return `${sign}${size} ${size === 1 ? "point" : "points"}`;
}

export function pretty(name) {
  return name.replaceAll("_", " ");
}

// A power of ten, twice or five times it: about a 200th of a range.
export function niceStep(low, high) {
  const width = high - low;
  if (!(width > 0)) return 0.01;
  const unit = 10 ** Math.floor(Math.log10(width / 200));
  const times = [1, 2, 5, 10].find((k) => unit * k >= (width / 200) * 0.999);
  return Number((unit * times).toPrecision(6));
}

export function snapped(value, step, low) {
  const ticks = Math.round((value - low) / step);
  return Number((low + ticks * step).toPrecision(10));
}

// As fine as the step, or four digits as the library writes them: the finer of both.
export function short(value, step) {
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const fixed = Number(value.toFixed(Math.min(12, digits)));
  const four = Number(value.toPrecision(4));
  return String(Math.abs(four - value) <= Math.abs(fixed - value) ? four : fixed);
}

// Names with spaces stand in backticks, which nobody has to read.
export function relations(text) {
  return text.replaceAll(">=", "≥").replaceAll("<=", "≤").replaceAll("`", "");
}

// What the best action that was found is called: only to act on it is advice.
export function called(verdict) {
  return verdict === "act" ? "recommended" : "best candidate";
}

export function listed(names, word = "and") {
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} ${word} ${names.at(-1)}`;
}
