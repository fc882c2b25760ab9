// The pictures: the landscape over the actions, the outcomes before and after.

import { $, described, showFault, waiting } from "./decision.js";
import { landscapeFigure, outcomesFigure, spot, theme } from "./figures.js";
import { called, listed, percent, pretty } from "./format.js";
import { draw, moveLast } from "./plots.js";
import { recommending, simulating, surveying, trying } from "./questions.js";
import { sidesOn } from "./region.js";
import { fields, held, landscapeKey, later, marks, state } from "./state.js";
import { failed } from "./trouble.js";

// Milliseconds before pictures are asked for.
export const PAUSE = 140;
// Seconds of a what-if beyond which pictures are drawn with fewer points.
export const SLOW = 0.1;
// Points of a curve, and along each side of a map.
const FINE = [61, 31];
export const COARSE = [25, 13];

let pick = () => {};

export function onPick(work) {
  pick = work;
}

surveying.answer({
  show: (told, question, newest) => newest && surveyed(told, question),
  fail: (error) => failed("landscape", error),
});

simulating.answer({
  show: (clouds, question, newest) => newest && simulated(clouds),
  fail: (error) => failed("outcomes", error),
});

export function picturesWait() {
  waiting("landscape", state.landscape?.key !== landscapeKey());
  waiting("outcomes", state.policy.can.simulate);
}

export function pictures() {
  if (trying.waits || recommending.waits) {
    later("survey", PAUSE, pictures);
    return;
  }
  survey();
  if (state.policy.can.simulate) {
    simulating.ask({ context: state.context, actions: state.actions, draws: 300 });
  }
}

export function survey() {
  const { context, over } = state;
  const key = landscapeKey();
  if (state.landscape?.key === key) {
    state.landscape.context = context;
    surveying.forget();
    drawLandscape();
  } else if (surveying.newest?.key !== key) {
    const points = (trying.seconds < SLOW ? FINE : COARSE)[over.length - 1];
    surveying.ask({ key, body: { context, over, at: held(), points } });
  }
  waiting("landscape", state.landscape?.key !== key);
}

function surveyed(told, { key, body }) {
  state.landscape = { ...told, key, context: body.context };
  showFault("landscape", null);
  waiting("landscape", false);
  drawLandscape();
}

export async function drawLandscape() {
  const told = state.landscape;
  if (told === null) return;
  const place = $("landscape-plot");
  try {
    await draw(place, landscapeFigure(told, marks(), theme()));
  } catch (error) {
    showFault("landscape", error);
    return;
  }
  for (const item of document.querySelectorAll("#landscape .one")) item.hidden = told.over.length > 1;
  $("advised-word").textContent = called(state.advice?.verdict);
  $("hatched").hidden = !told.extrapolates.flat().includes(true);
  place.dataset.over = told.over.join(" ");
  place.setAttribute("aria-label", landscapeText(told));
  const others = Object.keys(told.at).length ? `The others stay ${described(told.at, fields.actions)}. ` : "";
  $("landscape-note").textContent = `${others}Click to try a point.`;
  place.removeAllListeners("plotly_click");
  place.on("plotly_click", ({ points: [point] }) => pick(told.over, point));
}

function landscapeText(told) {
  const all = told.probability.flat().filter((p) => p !== null);
  const over = listed(told.over.map(pretty));
  return `The chance of a good outcome over ${over}: from ${percent(Math.min(...all))} to ${percent(Math.max(...all))}, ${percent(told.no_action)} without action.`;
}

export function moveMark() {
  const { setting, answer } = marks();
  if (trying.wanted === null) putMark(setting, answer?.probability);
}

export function putMark(actions, p) {
  const told = state.landscape;
  if (told === null || told.context !== state.context) return;
  moveLast($("landscape-plot"), spot(actions, p, told.over));
}

function simulated(clouds) {
  state.clouds = clouds;
  showFault("outcomes", null);
  waiting("outcomes", false);
  drawOutcomes();
}

export async function drawOutcomes() {
  const { clouds, shown, policy } = state;
  if (clouds === null) return;
  const figure = outcomesFigure(clouds.before, clouds.after, shown, policy.constraints, theme());
  try {
    await draw($("outcomes-plot"), figure);
  } catch (error) {
    showFault("outcomes", error);
    return;
  }
  const { whole } = sidesOn(policy.constraints, shown);
  const more = whole ? "" : " Conditions on other outcomes are not drawn.";
  $("outcomes-note").textContent = `Simulated, ${clouds.after.draws.length} draws each; no records.${more}`;
}
