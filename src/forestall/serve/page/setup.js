// Setting up: a field for each variable, the menus of the pictures.

import { actionChanged, contextChanged } from "./advice.js";
import { $, showFault } from "./decision.js";
import { makeField } from "./fields.js";
import { listed, pretty, relations } from "./format.js";
import { drawOutcomes } from "./pictures.js";
import { forgetAll } from "./questions.js";
import { readRow, RowError } from "./rows.js";
import { fields, state, typical, usual } from "./state.js";

export function build(policy) {
  state.policy = policy;
  Object.assign(state, { advice: null, answer: null, landscape: null, curve: null, clouds: null, follows: true });
  forgetAll();
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

function contextTyped(name, value) {
  state.context = { ...state.context, [name]: value };
  contextChanged();
}

export function useContext(row) {
  state.context = { ...row };
  for (const [name, field] of fields.context) field.set(row[name]);
  contextChanged();
}

export function usePasted() {
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
    : `${state.policy.method} learns the chance of a good outcome directly and simulates no outcomes. Fit with the default method, staged, to see them here.`;
}

function options(id, pairs) {
  $(id).replaceChildren(...pairs.map(([text, value]) => new Option(text, value)));
}

export function chooseOver() {
  const [first, second] = [$("over-1").value, $("over-2").value];
  for (const option of $("over-2").options) option.disabled = option.value === first;
  if (first === second) $("over-2").value = "";
  state.over = [first, $("over-2").value].filter(Boolean);
}

export function chooseShown() {
  const [first, second] = [Number($("show-1").value), Number($("show-2").value)];
  state.shown = first === second ? [first] : [first, second];
  drawOutcomes();
}
