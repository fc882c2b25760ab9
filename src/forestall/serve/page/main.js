// The page: a context, the advice for it, and what any other action would do.

import { contextChanged, follow } from "./advice.js";
import { ask, onMissingToken } from "./api.js";
import { $ } from "./decision.js";
import { Latest } from "./latest.js";
import { drawLandscape, drawOutcomes, survey } from "./pictures.js";
import { saveDecision, savePicture } from "./saving.js";
import { build, chooseOver, chooseShown, useContext, usePasted } from "./setup.js";
import { state, typical } from "./state.js";
import { banner, lost, onReturn, promptForToken } from "./trouble.js";

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

// The service may have loaded another policy while this page was away.
async function refresh() {
  try {
    const { fingerprint } = await ask("healthz");
    if (state.policy && fingerprint !== state.policy.fingerprint) await open();
  } catch {
    // The next question tells.
  }
}

async function open() {
  build(await ask("v1/policy"));
  contextChanged();
}

const opening = new Latest({ send: open });

opening.answer({
  show: () => {},
  fail: (error) => {
    banner(error.passing ? `${error.message} Trying again …` : error.message);
    lost();
  },
});

onMissingToken(promptForToken);
onReturn(refresh);
listen();
opening.ask({});
