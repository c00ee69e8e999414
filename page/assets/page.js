"use strict";
(() => {
  const EVERY = 2000;
  const LIMIT = 15000;
  const path = document.body.dataset.parts;
  const problem = document.getElementById("problem");

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {
      // Without TLS only local pages may use the clipboard: the command is selected instead.
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "selected";
    }
  });

  const say = (text) => {
    if (problem.textContent === text) return;
    problem.textContent = text;
    problem.hidden = !text;
    document.body.classList.toggle("stale", Boolean(text));
  };

  // An element is replaced only where it changed, so that a reader keeps what is selected, focused and unfolded.
  const replace = (element, html) => {
    if (element.dataset.shown === html) return;
    const first = element.dataset.shown === undefined;
    element.dataset.shown = html;
    const holder = document.createElement("template");
    holder.innerHTML = html;
    if (first && holder.innerHTML === element.innerHTML) return;
    for (const details of element.querySelectorAll("details[open][id]")) {
      holder.content.getElementById(details.id)?.setAttribute("open", "");
    }
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    const key = focused && (focused.dataset.copy || focused.getAttribute("href"));
    element.replaceChildren(holder.content);
    if (!key) return;
    for (const other of element.querySelectorAll("button, a")) {
      if (other.dataset.copy === key || other.getAttribute("href") === key) other.focus();
    }
  };

  const update = async () => {
    try {
      const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(LIMIT) });
      if (!answer.ok) {
        say(`The page's process answers ${answer.status}: ${(await answer.json()).reason}. Cure: see its log.`);
        return;
      }
      const state = await answer.json();
      for (const [id, html] of Object.entries(state.parts)) {
        const element = document.getElementById(id);
        if (element) replace(element, html);
      }
      const spoken = document.getElementById("spoken");
      if (spoken && state.spoken && spoken.textContent !== state.spoken) spoken.textContent = state.spoken;
      if (state.title && document.title !== state.title) document.title = state.title;
      const seen = state.at ? ` The page shows the state of ${state.at.slice(11, 19)} UTC.` : "";
      say(state.problem ? `${state.problem.cause} Cure: ${state.problem.cure}.${seen}` : "");
    } catch {
      say("The page's own process does not answer. Cure: start it again with pulsar-migrate page. This page then continues by itself.");
    }
  };

  // The page of a problem is loaded again once there is something to show.
  const ask = async () => {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(LIMIT) }).catch(() => null);
    if (answer?.ok) location.reload();
    else setTimeout(ask, EVERY);
  };
  if (document.querySelector("main[data-again]")) setTimeout(ask, EVERY);

  const repeat = async () => {
    if (!document.hidden) await update();
    setTimeout(repeat, EVERY);
  };
  document.addEventListener("visibilitychange", () => document.hidden || update());
  if (path) setTimeout(repeat, EVERY);
})();
