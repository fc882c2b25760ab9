// A decision on the page: verdict, sentence, probability, interval, support.

import { difference, interval, percent, pretty, short } from "./format.js";

const BADGES = { act: "Act", leave: "Leave", abstain: "No advice" };
const MEANING = {
  act: "The improvement is credible.",
  leave: "No credible improvement over doing nothing.",
  abstain: "Too little is known to exclude harm.",
};

export const $ = (id) => document.getElementById(id);

export function showBadge(id, verdict) {
  const badge = $(id);
  badge.textContent = BADGES[verdict] ?? "";
  badge.title = MEANING[verdict] ?? "";
  badge.dataset.verdict = verdict ?? "";
}

export function showAdvice(row) {
  showBadge("advice-badge", row.verdict);
  $("sentence").textContent = row.explanation;
}

export function showAnswer(row, actions, fields) {
  showNumbers(row, actions, fields, "");
  $("probability").dataset.value = row.probability;
  $("reason").textContent = row.explanation;
  showBadge("whatif-badge", row.verdict);
  roughly(false);
}

// What a landscape says, until the answer itself has come; it knows no verdict.
export function showGlimpse(row, actions, fields) {
  showNumbers(row, actions, fields, "≈ ");
  $("probability").dataset.value = "";
  $("reason").textContent = "Roughly, as read off the picture. The exact answer follows.";
  showBadge("whatif-badge", null);
  roughly(true);
}

export function roughly(on) {
  $("whatif").classList.toggle("rough", on);
}

function showNumbers(row, actions, fields, mark) {
  $("probability").textContent = `${mark}${percent(row.probability)}`;
  $("setting").textContent = described(actions, fields);
  const marked = (text, ...of) => (of.includes(null) ? text : `${mark}${text}`);
  $("interval").textContent = marked(interval(row.lower, row.upper), row.lower, row.upper);
  $("no-action").textContent = percent(row.no_action);
  $("gain").textContent = marked(difference(row.probability, row.no_action), row.probability, row.no_action);
  $("support").textContent = marked(percent(row.support), row.support);
  $("support-bar").firstElementChild.style.width = `${100 * row.support}%`;
  $("warning").hidden = !row.extrapolates;
  $("warning").textContent = "Hardly any record is like this: the numbers extrapolate.";
  moveGauge(row, mark);
}

export function described(actions, fields) {
  const told = Object.entries(actions).map(
    ([name, value]) => `${pretty(name)} ${short(value, fields.get(name).step)}`,
  );
  return `at ${told.join(", ")}`;
}

export function spoken(row, actions, fields) {
  const chance = `${percent(row.probability)} ${described(actions, fields)}`;
  const caution = row.extrapolates ? ` ${$("warning").textContent}` : "";
  return `Chance of a good outcome: ${chance}; without action ${percent(row.no_action)}.${caution}`;
}

function moveGauge(row, mark) {
  const known = row.lower !== null && row.upper !== null;
  place($("dot"), row.probability);
  place($("without"), row.no_action);
  $("band").hidden = !known;
  $("band").style.left = `${100 * (row.lower ?? 0)}%`;
  $("band").style.width = `${100 * ((row.upper ?? 0) - (row.lower ?? 0))}%`;
  const range = known ? `, 90% interval ${interval(row.lower, row.upper)}` : "";
  const told = `${mark}${percent(row.probability)}${range}; without action ${percent(row.no_action)}`;
  $("gauge").setAttribute("aria-label", told);
}

function place(mark, p) {
  mark.hidden = p === null;
  mark.style.left = `${100 * (p ?? 0)}%`;
}

export function showFault(id, error, again = true) {
  const line = $(`${id}-error`);
  line.hidden = error === null;
  const retry = error?.passing && again ? " Trying again …" : "";
  line.textContent = error === null ? "" : `${error.message}${retry}`;
}

export function waiting(id, on) {
  $(id).classList.toggle("waiting", on);
  $(id).setAttribute("aria-busy", String(on));
}
