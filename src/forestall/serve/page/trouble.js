// Trouble: errors in their places, a lost connection, a token that is asked for.

import { Lost } from "./api.js";
import { $, showBadge, showFault, waiting } from "./decision.js";
import { state } from "./state.js";

let returned = () => {};

export function onReturn(work) {
  returned = work;
}

export function failed(id, error) {
  if (error instanceof Lost) {
    banner("The service does not answer. What stands here is from before; trying again …");
    lost();
    return;
  }
  connected();
  showFault(id, error);
  blank(id);
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

export function banner(text) {
  $("banner").hidden = text === "";
  $("banner").textContent = text;
}

export function lost() {
  $("status").textContent = "no connection";
  $("status").dataset.lost = "true";
}

export function connected() {
  const before = $("status").dataset.lost;
  if (before === "false") return;
  $("status").dataset.lost = "false";
  $("status").textContent = "connected";
  banner("");
  if (before === "true") returned();
}

export function promptForToken(complaint) {
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
