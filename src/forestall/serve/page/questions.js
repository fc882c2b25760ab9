// What is asked of the service; who shows the answers adds to it with answer().

import { ask } from "./api.js";
import { Latest } from "./latest.js";

export const recommending = new Latest({
  send: async (context) => (await ask("v1/recommend", { contexts: [context] })).decisions[0],
});

export const trying = new Latest({
  send: async ({ context, actions }) => (await ask("v1/whatif", { contexts: [context], actions })).decisions[0],
});

export const surveying = new Latest({
  send: ({ body }, signal) => ask("v1/landscape", body, signal),
  interrupt: true,
});

// The curve of an action that no picture shows, while it is dragged.
export const foreseeing = new Latest({
  send: ({ body }, signal) => ask("v1/landscape", body, signal),
  interrupt: true,
});

export const simulating = new Latest({
  send: async ({ context, actions, draws }) => {
    const [before, after] = await Promise.all([
      ask("v1/outcomes", { context, actions: null, draws }),
      ask("v1/outcomes", { context, actions, draws }),
    ]);
    return { before, after };
  },
});

export function forgetAll() {
  for (const question of [recommending, trying, surveying, foreseeing, simulating]) question.forget();
}
