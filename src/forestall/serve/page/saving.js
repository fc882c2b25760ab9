// What can be taken home: the decision as JSON, the pictures as PNG.

import { landscapeFigure, outcomesFigure, theme } from "./figures.js";
import { pretty, relations } from "./format.js";
import { download, picture } from "./plots.js";
import { marks, state } from "./state.js";

export async function savePicture(id) {
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

export function saveDecision() {
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
