// The advice for a context, and what any other action would do.

import { $, showAdvice, showAnswer, showBadge, showFault, showGlimpse, spoken, waiting } from "./decision.js";
import { between } from "./figures.js";
import { called } from "./format.js";
import { moveMark, onPick, PAUSE, pictures, picturesWait, SLOW } from "./pictures.js";
import { recommending, trying } from "./questions.js";
import { fields, known, later, never, state, usual } from "./state.js";
import { connected, failed } from "./trouble.js";

// Milliseconds: before an old answer is taken away, before the curve stands in for an
// answer, before something is read aloud.
const OLD = 500;
const GLIMPSE = 70;
const SPEAK = 700;

recommending.answer({
  show: (row, context, newest) => newest && advised(row),
  fail: (error) => failed("advice", error),
});

trying.answer({
  show: (row, question, newest) => question.context === state.context && answered(row, question, newest),
  fail: (error) => failed("whatif", error),
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
}

function tryActions() {
  const question = { context: state.context, actions: state.actions };
  waiting("whatif", true);
  trying.ask(question);
  picturesWait();
  later("glimpse", trying.seconds < SLOW ? GLIMPSE : 0, glimpse);
  later("survey", PAUSE, pictures);
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

// A method that answers slowly: the curve that is drawn already shows the way.
function glimpse() {
  const told = state.landscape;
  if (!trying.waits || told === null || told.context !== state.context) return;
  const [name, ...more] = told.over;
  const still = Object.entries(told.at).every(([k, value]) => state.actions[k] === value);
  const p = more.length || !still ? null : between(told.axes[0], told.probability, state.actions[name]);
  if (p !== null) showGlimpse(p, state.actions, fields.actions);
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
