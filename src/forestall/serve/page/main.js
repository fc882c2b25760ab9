// The page: a context, the advice for it, and what any other action would do.

import { ask, Lost, onMissingToken } from "./api.js";
import { $, described, showAdvice, showAnswer, showBadge, showFault, showGlimpse, spoken, waiting } from "./decision.js";
import { makeField } from "./fields.js";
import { between, landscapeFigure, outcomesFigure, spot, theme } from "./figures.js";
import { listed, percent, pretty, relations, short } from "./format.js";
import { Latest } from "./latest.js";
import { download, draw, moveLast, picture } from "./plots.js";
import { readRow, RowError } from "./rows.js";
import { sidesOn } from "./region.js";

// Milliseconds: before pictures are asked for, before an old answer is taken away,
// before the curve stands in for an answer, before something is read aloud.
const PAUSE = 140;
const OLD = 500;
const GLIMPSE = 70;
const SPEAK = 700;
// Seconds of a what-if beyond which pictures are drawn with fewer points.
const SLOW = 0.1;
// Points of a curve, and along each side of a map.
const FINE = [61, 31];
const COARSE = [25, 13];

const state = {
  policy: null,
  context: {},
  actions: {},
  follows: true,
  advice: null,
  answer: null,
  landscape: null,
  clouds: null,
  over: [],
  shown: [],
};
const fields = { context: new Map(), actions: new Map() };
const timers = {};

function later(name, milliseconds, work) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(work, milliseconds);
}

// The questions, each with what is done with its answer.

const recommending = new Latest({
  send: async (context) => (await ask("v1/recommend", { contexts: [context] })).decisions[0],
  show: (row, context, newest) => newest && advised(row),
  fail: (error) => failed("advice", error),
});

const trying = new Latest({
  send: async ({ context, actions }) => (await ask("v1/whatif", { contexts: [context], actions })).decisions[0],
  show: (row, question, newest) => question.context === state.context && answered(row, question, newest),
  fail: (error) => failed("whatif", error),
});

const surveying = new Latest({
  send: ({ body }, signal) => ask("v1/landscape", body, signal),
  show: (told, question, newest) => newest && surveyed(told, question),
  fail: (error) => failed("landscape", error),
  interrupt: true,
});

const simulating = new Latest({
  send: async ({ context, actions, draws }) => {
    const [before, after] = await Promise.all([
      ask("v1/outcomes", { context, actions: null, draws }),
      ask("v1/outcomes", { context, actions, draws }),
    ]);
    return { before, after };
  },
  show: (clouds, question, newest) => newest && simulated(clouds),
  fail: (error) => failed("outcomes", error),
});

const QUESTIONS = [recommending, trying, surveying, simulating];

// What changes.

function contextChanged() {
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
  clearTimeout(timers.old);
  connected();
  showFault("advice", null);
  showAdvice(row);
  waiting("advice", false);
  $("save").disabled = false;
  for (const [name, field] of fields.actions) {
    const value = row.actions[name] ?? null;
    field.mark("advised", "recommended", value);
  }
  if (state.follows) follow();
  $("follow").disabled = state.follows || Object.keys(row.actions).length === 0;
  say();
  later("survey", PAUSE, pictures);
}

function follow() {
  state.follows = true;
  $("follow").disabled = true;
  const actions = { ...usual(), ...known(state.advice.actions) };
  for (const [name, field] of fields.actions) field.set(actions[name]);
  state.actions = actions;
  tryActions();
}

function known(actions) {
  return Object.fromEntries(Object.entries(actions).filter(([, value]) => value !== null));
}

function usual() {
  return Object.fromEntries(state.policy.actions.map(({ name, typical }) => [name, typical]));
}

function actionChanged(name, value) {
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
  clearTimeout(timers.glimpse);
  state.answer = { row, ...question };
  connected();
  showFault("whatif", null);
  showAnswer(row, question.actions, fields.actions);
  if (state.follows) $("reason").textContent = "This is the recommendation. Drag to see what another value would do.";
  $("whatif").dataset.answers = JSON.stringify(question.actions);
  waiting("whatif", !newest);
  if (newest) say();
  requestAnimationFrame(moveMark);
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

// The pictures.

function picturesWait() {
  waiting("landscape", state.landscape?.key !== landscapeKey());
  waiting("outcomes", state.policy.can.simulate);
}

function pictures() {
  if (trying.waits || recommending.waits) {
    later("survey", PAUSE, pictures);
    return;
  }
  survey();
  if (state.policy.can.simulate) {
    simulating.ask({ context: state.context, actions: state.actions, draws: 300 });
  }
}

function survey() {
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

function held() {
  const others = Object.entries(state.actions).filter(([name]) => !state.over.includes(name));
  return Object.fromEntries(others);
}

function landscapeKey() {
  return JSON.stringify([state.context, state.over, held()]);
}

function surveyed(told, { key, body }) {
  state.landscape = { ...told, key, context: body.context };
  showFault("landscape", null);
  waiting("landscape", false);
  drawLandscape();
}

function marks() {
  const { advice, answer } = state;
  const current = answer?.context === state.context ? answer : null;
  return {
    usual: usual(),
    advised: advice && Object.keys(advice.actions).length ? { ...usual(), ...known(advice.actions) } : null,
    advice,
    setting: current?.actions,
    answer: current?.row,
  };
}

async function drawLandscape() {
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
  $("hatched").hidden = !told.extrapolates.flat().includes(true);
  place.dataset.over = told.over.join(" ");
  place.setAttribute("aria-label", landscapeText(told));
  const others = Object.keys(told.at).length ? `The others stay ${described(told.at, fields.actions)}. ` : "";
  $("landscape-note").textContent = `${others}Click to try a point.`;
  place.removeAllListeners("plotly_click");
  place.on("plotly_click", ({ points: [point] }) => clicked(told.over, point));
}

function landscapeText(told) {
  const all = told.probability.flat().filter((p) => p !== null);
  const over = listed(told.over.map(pretty));
  return `The chance of a good outcome over ${over}: from ${percent(Math.min(...all))} to ${percent(Math.max(...all))}, ${percent(told.no_action)} without action.`;
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

function moveMark() {
  const told = state.landscape;
  if (told === null || told.context !== state.context || trying.wanted !== null) return;
  const { setting, answer } = marks();
  moveLast($("landscape-plot"), spot(setting, answer?.probability, told.over));
}

function simulated(clouds) {
  state.clouds = clouds;
  showFault("outcomes", null);
  waiting("outcomes", false);
  drawOutcomes();
}

async function drawOutcomes() {
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

async function savePicture(id) {
  const told = { landscape: state.landscape, outcomes: state.clouds }[id];
  if (told === null) return;
  const look = theme();
  const figure =
    id === "landscape"
      ? landscapeFigure(told, marks(), look)
      : outcomesFigure(told.before, told.after, state.shown, state.policy.constraints, look);
  const title = id === "landscape" ? `The chance that ${relations(state.policy.desired)}` : "Outcomes, before and after";
  const url = await picture(figure, title, contextText());
  download(`forestall-${id}.png`, url);
}

function contextText() {
  const told = Object.entries(state.context).map(([name, value]) => `${pretty(name)} ${value}`);
  return `for ${told.join(", ")}`.replaceAll("<", "&lt;");
}

function saveDecision() {
  const { policy, answer } = state;
  const { method, desired, identification, records, fingerprint, versions } = policy;
  const tried = answer?.context === state.context ? answer.row : null;
  const told = {
    made: new Date().toISOString(),
    context: state.context,
    recommendation: state.advice,
    whatif: tried && { actions: answer.actions, ...tried },
    policy: { method, desired, identification, records, fingerprint, versions },
  };
  const url = URL.createObjectURL(new Blob([JSON.stringify(told, null, 2)], { type: "application/json" }));
  download("forestall-decision.json", url);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Trouble.

function failed(id, error) {
  const lost = error instanceof Lost;
  if (lost) banner("The service does not answer. What stands here is from before; trying again …");
  $("status").textContent = lost ? "no connection" : $("status").textContent;
  $("status").dataset.lost = String(lost);
  if (!lost) {
    showFault(id, error);
    blank(id);
  }
}

// An answer to another question than the one that failed must not stand there.
function blank(id) {
  waiting(id, true);
  if (id === "advice") {
    $("sentence").textContent = "";
    showBadge("advice-badge", null);
    state.advice = null;
  }
}

function banner(text) {
  $("banner").hidden = text === "";
  $("banner").textContent = text;
}

function connected() {
  const { lost } = $("status").dataset;
  if (lost === "false") return;
  $("status").dataset.lost = "false";
  $("status").textContent = "connected";
  banner("");
  if (lost === "true") refresh();
}

// The service may have loaded another policy while this page was away.
async function refresh() {
  try {
    const { fingerprint } = await ask("healthz");
    if (state.policy && fingerprint !== state.policy.fingerprint) await open();
  } catch {
    // The next question tells.
  }
}

function promptForToken(complaint) {
  const dialog = $("token-dialog");
  $("token").value = "";
  showFault("token", complaint === null ? null : new Error(complaint));
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    $("token-form").onsubmit = (event) => {
      event.preventDefault();
      const given = $("token").value;
      $("token").value = "";
      dialog.close();
      resolve(given);
    };
  });
}

// Setting up.

function build(policy) {
  state.policy = policy;
  Object.assign(state, { advice: null, answer: null, landscape: null, clouds: null, follows: true });
  for (const question of QUESTIONS) question.forget();
  $("question").textContent = question(policy);
  document.title = `forestall: ${policy.actions.map(({ name }) => pretty(name)).join(", ")}`;
  const records = policy.records === null ? "" : `${policy.records.toLocaleString("en")} records`;
  $("about").textContent = [policy.method, records].filter(Boolean).join(" · ");
  $("identification").textContent = policy.identification;
  const { forestall, python } = policy.versions;
  $("versions").textContent = `Policy ${policy.fingerprint.slice(0, 12)} · forestall ${forestall ?? ""} · Python ${python}`;
  put("context", policy.contexts, contextTyped);
  put("actions", policy.actions, actionChanged);
  for (const { name, typical: value } of policy.actions) {
    fields.actions.get(name).mark("usual", "usual", value);
  }
  state.actions = usual();
  state.context = typical();
  $("pasted").placeholder = policy.contexts.map(({ name, typical: value }) => `${name}=${value}`).join(", ");
  menus(policy);
  $("main").hidden = false;
  $("foot").hidden = false;
}

function question({ actions, desired }) {
  const names = listed(actions.map(({ name }) => pretty(name)));
  const word = actions.length === 1 ? "Which" : "Which values of";
  return `${word} ${names} ${actions.length === 1 ? "makes" : "make"} ${relations(desired)} most likely?`;
}

function put(kind, told, changed) {
  fields[kind].clear();
  for (const each of told) fields[kind].set(each.name, makeField(each, changed));
  for (const each of told) fields[kind].get(each.name).set(each.typical);
  const place = kind === "context" ? $("context-fields") : $("action-fields");
  place.replaceChildren(...[...fields[kind].values()].map((field) => field.element));
}

function typical() {
  return Object.fromEntries(state.policy.contexts.map(({ name, typical: value }) => [name, value]));
}

function contextTyped(name, value) {
  state.context = { ...state.context, [name]: value };
  contextChanged();
}

function useContext(row) {
  state.context = { ...row };
  for (const [name, field] of fields.context) field.set(row[name]);
  contextChanged();
}

function usePasted() {
  $("paste-note").textContent = "";
  try {
    const { row, ignored } = readRow($("pasted").value, state.policy.contexts);
    showFault("paste", null);
    $("paste-note").textContent = ignored.length ? `Taken. Left out: ${ignored.join(", ")}.` : "Taken.";
    useContext(row);
  } catch (error) {
    if (!(error instanceof RowError)) throw error;
    showFault("paste", error);
  }
}

function menus({ actions, outcomes, can }) {
  const names = actions.map(({ name }) => name);
  options("over-1", names.map((name) => [pretty(name), name]));
  options("over-2", [["nothing else", ""], ...names.map((name) => [pretty(name), name])]);
  $("over-2").value = names.length > 1 ? names[1] : "";
  $("over-2-label").hidden = names.length < 2;
  $("over-1").disabled = names.length < 2;
  chooseOver();
  const kinds = outcomes.map((name, k) => [pretty(name), k]);
  options("show-1", kinds);
  options("show-2", kinds);
  $("show-2").value = String(Math.min(1, outcomes.length - 1));
  for (const id of ["show-1-label", "show-2-label"]) $(id).hidden = outcomes.length < 3 || !can.simulate;
  state.shown = outcomes.length === 1 ? [0] : [0, 1];
  for (const each of document.querySelectorAll("#outcomes .plot, #outcomes .legend")) each.hidden = !can.simulate;
  $("outcomes-png").hidden = !can.simulate;
  document.body.classList.toggle("cloudless", !can.simulate);
  $("outcomes-note").textContent = can.simulate
    ? ""
    : `${state.policy.method} learns the chance of a good outcome directly and simulates no outcomes. Fit with StagedRehearsal to see them here.`;
}

function options(id, pairs) {
  $(id).replaceChildren(...pairs.map(([text, value]) => new Option(text, value)));
}

function chooseOver() {
  const [first, second] = [$("over-1").value, $("over-2").value];
  for (const option of $("over-2").options) option.disabled = option.value === first;
  if (first === second) $("over-2").value = "";
  state.over = [first, $("over-2").value].filter(Boolean);
}

function chooseShown() {
  const [first, second] = [Number($("show-1").value), Number($("show-2").value)];
  state.shown = first === second ? [first] : [first, second];
  drawOutcomes();
}

function listen() {
  $("reset").addEventListener("click", () => useContext(typical()));
  $("follow").addEventListener("click", follow);
  $("save").addEventListener("click", saveDecision);
  $("use").addEventListener("click", usePasted);
  $("landscape-png").addEventListener("click", () => savePicture("landscape"));
  $("outcomes-png").addEventListener("click", () => savePicture("outcomes"));
  for (const id of ["over-1", "over-2"]) {
    $(id).addEventListener("change", () => {
      chooseOver();
      survey();
    });
  }
  for (const id of ["show-1", "show-2"]) $(id).addEventListener("change", chooseShown);
  $("token-dialog").addEventListener("cancel", (event) => event.preventDefault());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    drawLandscape();
    drawOutcomes();
  });
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
}

async function open() {
  build(await ask("v1/policy"));
  contextChanged();
}

const opening = new Latest({
  send: open,
  show: () => {},
  fail: (error) => {
    banner(error.passing ? `${error.message} Trying again …` : error.message);
    $("status").textContent = "no connection";
    $("status").dataset.lost = "true";
  },
});

onMissingToken(promptForToken);
listen();
opening.ask({});
