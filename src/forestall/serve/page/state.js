// What the page is about: the policy, the context, the settings and the answers.

export const state = {
  policy: null,
  context: {},
  actions: {},
  follows: true,
  advice: null,
  answer: null,
  landscape: null,
  curve: null,
  clouds: null,
  over: [],
  shown: [],
};
export const fields = { context: new Map(), actions: new Map() };
const timers = {};

export function later(name, milliseconds, work) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(work, milliseconds);
}

export function never(name) {
  clearTimeout(timers[name]);
}

export function known(actions) {
  return Object.fromEntries(Object.entries(actions).filter(([, value]) => value !== null));
}

export function usual() {
  return Object.fromEntries(state.policy.actions.map(({ name, typical }) => [name, typical]));
}

export function typical() {
  return Object.fromEntries(state.policy.contexts.map(({ name, typical: value }) => [name, value]));
}

export function held() {
  const others = Object.entries(state.actions).filter(([name]) => !state.over.includes(name));
  return Object.fromEntries(others);
}

export function landscapeKey() {
  return JSON.stringify([state.context, state.over, held()]);
}

export function marks() {
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
