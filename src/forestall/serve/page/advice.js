// The advice for a context, and what any other action would do.

import { $, roughly, showAdvice, showAnswer, showBadge, showFault, showGlimpse, spoken, waiting } from "./decision.js";
import { foretold } from "./foretold.js";
import { called } from "./format.js";
import { COARSE, moveMark, onPick, PAUSE, pictures, picturesWait, putMark, SLOW } from "./pictures.js";
import { foreseeing, recommending, trying } from "./questions.js";
import { fields, known, later, never, state, usual } from "./state.js";
import { connected, failed } from "./trouble.js";

// Milliseconds: before an old answer is taken away, before a picture stands in for an
// answer, before something is read aloud.
const OLD = 500;
const GLIMPSE = 40;
const SPEAK = 700;

recommending.answer({
  show: (row, context, newest) => newest && advised(row),
  fail: (error) => failed("advice", error),
});

trying.answer({
  show: (row, question, newest) => wanted(question, newest) && answered(row, question, newest),
  fail: (error) => {
    // No exact answer will follow this rough one.
    never("glimpse");
    roughly(false);
    failed("whatif", error);
  },
});

foreseeing.answer({
  show: (told, { body }, newest) => newest && foreseen({ ...told, context: body.context }),
  // Without it the exact answers still come.
  fail: () => {},
});

onPick(clicked);

export function contextChanged() {
  state.context = { ...state.context };
  waiting("advice", true);
  picturesWait();
  later("old", OLD, takeAway);
  if (state.follows) waiting("whatif", true);
  else tryActions();
  recommending.ask(state.context);
}

// Advice for another context must not stand there while the new one is worked out.
function takeAway() {
  if (!recommending.waits) return;
  $("sentence").textContent = "Working it out …";
  showBadge("advice-badge", null);
  state.advice = null;
  $("save").disabled = true;
  $("follow").disabled = true;
}

function advised(row) {
  state.advice = row;
  never("old");
  connected();
  showFault("advice", null);
  showAdvice(row);
  waiting("advice", false);
  $("save").disabled = false;
  for (const [name, field] of fields.actions) {
    const value = row.actions[name] ?? null;
    field.mark("advised", called(row.verdict), value);
  }
  if (state.follows) follow();
  $("follow").disabled = state.follows || Object.keys(row.actions).length === 0;
  say();
  later("survey", PAUSE, pictures);
}

export function follow() {
  state.follows = true;
  $("follow").disabled = true;
  const actions = { ...usual(), ...known(state.advice.actions) };
  for (const [name, field] of fields.actions) field.set(actions[name]);
  state.actions = actions;
  tryActions();
}

export function actionChanged(name, value) {
  state.follows = false;
  state.actions = { ...state.actions, [name]: value };
  $("follow").disabled = state.advice === null;
  tryActions();
  foresee(name);
}

function tryActions() {
  const question = { context: state.context, actions: state.actions };
  waiting("whatif", true);
  trying.ask(question);
  picturesWait();
  later("glimpse", 1000 * trying.seconds < GLIMPSE ? GLIMPSE : 0, glimpse);
  later("survey", PAUSE, pictures);
}

// An exact answer to an older setting does not replace a rough one to the newest.
function wanted({ context }, newest) {
  return context === state.context && (newest || !$("whatif").classList.contains("rough"));
}

function answered(row, question, newest) {
  never("glimpse");
  state.answer = { row, ...question };
  connected();
  showFault("whatif", null);
  showAnswer(row, question.actions, fields.actions);
  if (state.follows) $("reason").textContent = `${followed()} Drag to see what another value would do.`;
  $("whatif").dataset.answers = JSON.stringify(question.actions);
  waiting("whatif", !newest);
  if (newest) say();
  requestAnimationFrame(moveMark);
}

function followed() {
  const { verdict, actions } = state.advice ?? { actions: {} };
  if (verdict === "act") return "This is the recommendation.";
  const found = Object.keys(known(actions)).length > 0;
  return found ? "This is the best candidate, which is not advised." : "This is the usual action.";
}

// A method that answers slowly: a picture that is known already shows the way.
function glimpse() {
  if (!trying.waits) return;
  const { actions } = state;
  const row = expected();
  if (row === null) return roughly(false);
  showGlimpse(row, actions, fields.actions);
  // Where the answer is near, it moves the mark itself.
  if (trying.seconds >= SLOW) requestAnimationFrame(() => trying.waits && putMark(actions, row.probability));
}

function expected() {
  const { context, actions, answer } = state;
  const known = [state.landscape, state.curve].filter((told) => told?.context === context);
  const row = known.map((told) => foretold(told, actions)).find((told) => told !== null) ?? null;
  // What happens without action is known already: it is the same for every setting.
  return row && answer?.context === context ? { ...row, no_action: answer.row.no_action } : row;
}

// An action that the picture does not show: its curve, for the rest of the drag.
function foresee(name) {
  if (trying.seconds < SLOW || state.over.includes(name)) return;
  const { [name]: moved, ...at } = state.actions;
  const key = JSON.stringify([state.context, name, at]);
  if (foreseeing.newest?.key === key) return;
  foreseeing.ask({ key, body: { context: state.context, over: [name], at, points: COARSE[0] } });
}

function foreseen(told) {
  state.curve = told;
  glimpse();
}

function say() {
  later("say", SPEAK, () => {
    const parts = state.advice ? [state.advice.explanation] : [];
    const { answer } = state;
    if (answer && !state.follows) parts.push(spoken(answer.row, answer.actions, fields.actions));
    $("spoken").textContent = parts.join(" ");
  });
}

function clicked(over, point) {
  over.forEach((name, i) => {
    const field = fields.actions.get(name);
    const value = i === 0 ? point.x : point.y;
    field.set(Math.min(field.high, Math.max(field.low, value)));
    state.actions = { ...state.actions, [name]: field.value };
  });
  actionChanged(over[0], fields.actions.get(over[0]).value);
}
