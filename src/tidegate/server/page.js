// Asks the server that sent this page, and shows its answers. Nothing is computed here but the time that is
// left of a wait: what remains of a budget is what the server says when it is asked, without taking.
"use strict";

(() => {
  const PEEK_EVERY_MS = 250;
  const PEEK_FOR_MS = 120_000;
  const HISTORY_MOST = 60;
  const BURST = 10;

  const byId = (id) => document.getElementById(id);
  const form = byId("ask");
  const caller = `page-${Math.random().toString(36).slice(2)}`; // so that this page keeps its place in line
  let asked = null; // what was asked last, for the peeks that follow
  let peeking = 0; // the timer of the next peek
  let peekUntilMs = 0;
  let retryAtMs = null;
  let counting = 0;
  let allowedCount = 0;
  let refusedCount = 0;

  function question() {
    const attributes = [...form.querySelectorAll("[data-attribute]")]
      .filter((input) => input.value !== "")
      .map((input) => [input.dataset.attribute, input.value]);
    return { attributes: Object.fromEntries(attributes), cost: Number(byId("cost").value), caller };
  }

  async function decide(body) {
    const response = await fetch("v1/decide", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.detail);
    return answer;
  }

  async function ask(times) {
    if (!form.reportValidity()) return;
    asked = question();
    stopPeeking();
    try {
      const body = times === 1 ? asked : { requests: Array(times).fill(asked) };
      const answer = await decide(body);
      const decisions = times === 1 ? [answer] : answer.decisions;
      const broken = decisions.find((decision) => decision.error);
      if (broken) throw new Error(broken.error.detail);
      show(decisions, body);
    } catch (error) {
      complain(error);
    }
  }

  function complain(error) {
    byId("error").textContent =
      error instanceof TypeError ? "The server does not answer. Is it still running?" : error.message;
    byId("error").hidden = false;
  }

  function show(decisions, body) {
    const last = decisions.at(-1);
    const allowed = decisions.filter((decision) => decision.allowed).length;
    byId("error").hidden = true;
    byId("answer").hidden = false;
    byId("answer").className = last.allowed ? "allowed" : "refused";
    byId("word").textContent = word(decisions.length, allowed);
    byId("why").textContent = reason(last, allowed < decisions.length && allowed > 0);
    showRetry(last);
    showOutcomes(last);
    remember(decisions);
    showCommand(body, decisions.length === 1 ? last : { decisions });
    if (unsettled(last.outcomes)) startPeeking();
  }

  function word(asked, allowed) {
    if (asked === 1) return allowed ? "Allowed" : "Refused";
    return `${allowed} of ${asked} allowed`;
  }

  function reason(decision, inPart) {
    if (decision.outcomes.length === 0) {
      if (decision.rule === "") return "by no rule: none matches this request";
      return `by the rule “${decision.rule}”, which asks no limit`;
    }
    if (decision.allowed) {
      return decision.wait > 0 ? `to start in ${duration(decision.wait)}, when its turn comes` : "";
    }
    return `${inPart ? "the rest refused " : ""}by “${decision.rule}”`;
  }

  function showRetry(decision) {
    retryAtMs = null;
    clearInterval(counting);
    byId("retry").hidden = decision.allowed;
    if (decision.allowed) return;
    if (decision.retry_after === null) {
      byId("countdown").textContent = "Waiting does not help: this can never pass.";
      return;
    }
    retryAtMs = performance.now() + decision.retry_after * 1000;
    const header = decision.headers["Retry-After"];
    const told = header === undefined ? "" : ` A client is told Retry-After: ${header}.`;
    const count = () => {
      const leftMs = retryAtMs - performance.now();
      if (leftMs <= 0) clearInterval(counting);
      byId("countdown").textContent =
        (leftMs > 0 ? `Passes in ${duration(leftMs / 1000)}, if nobody else asks.` : "Now it would pass.") + told;
    };
    count();
    counting = setInterval(count, 100);
  }

  function showOutcomes(decision) {
    const rows = decision.outcomes.map((outcome) => {
      const row = document.createElement("tr");
      const name = cell("th", outcome.rule);
      name.scope = "row";
      if (outcome.rule === decision.rule) {
        row.className = "binds";
        const badge = cell("span", "binds");
        badge.className = "badge";
        name.append(" ", badge);
      }
      const said = cell("td", spoken(outcome));
      said.className = outcome.allowed ? "yes" : "no";
      const left = document.createElement("td");
      const amount = document.createElement("span");
      amount.className = "amount";
      const meter = document.createElement("div");
      meter.className = "meter";
      meter.setAttribute("role", "meter");
      meter.setAttribute("aria-label", `left under ${outcome.rule}`);
      meter.append(document.createElement("span"));
      left.append(amount, meter);
      row.append(name, said, left);
      fill(row, outcome);
      return row;
    });
    byId("outcomes").tBodies[0].replaceChildren(...rows);
    byId("outcomes").hidden = rows.length === 0;
  }

  function cell(kind, text) {
    const made = document.createElement(kind);
    made.textContent = text;
    return made;
  }

  function spoken(outcome) {
    const verdict = outcome.allowed ? "passes" : "refuses";
    return outcome.mode === "shadow" ? `${verdict} (only reports)` : verdict;
  }

  function fill(row, outcome) {
    const capacity = outcome.limit.capacity;
    const left = Math.max(0, outcome.balance);
    const meter = row.querySelector(".meter");
    const owed = outcome.balance < 0 ? `, ${amountText(-outcome.balance)} owed` : "";
    row.querySelector(".amount").textContent = `${outcome.remaining.toLocaleString("en")} of ${amountText(capacity)}${owed}`;
    meter.setAttribute("aria-valuemin", "0");
    meter.setAttribute("aria-valuemax", capacity);
    meter.setAttribute("aria-valuenow", left);
    meter.firstChild.style.width = `${Math.min(100, (100 * left) / capacity)}%`;
  }

  function remember(decisions) {
    const squares = decisions.map((decision) => {
      const square = document.createElement("span");
      if (!decision.allowed) square.className = "no";
      if (decision.allowed) allowedCount += 1;
      else refusedCount += 1;
      return square;
    });
    byId("history").append(...squares.slice(-HISTORY_MOST));
    while (byId("history").children.length > HISTORY_MOST) byId("history").firstChild.remove();
    byId("tally").textContent = `So far from this page: ${allowedCount} allowed, ${refusedCount} refused.`;
  }

  function showCommand(body, answer) {
    const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
    const url = new URL("v1/decide", location.href).href;
    byId("command").textContent = `curl -s ${url} \\\n  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
    byId("json").textContent = JSON.stringify(answer, null, 2);
  }

  // --- watching budgets come back ---

  function startPeeking() {
    peekUntilMs = performance.now() + PEEK_FOR_MS;
    peeking = setTimeout(peek, PEEK_EVERY_MS);
  }

  function stopPeeking() {
    clearTimeout(peeking);
    peeking = 0;
  }

  function unsettled(outcomes) {
    return outcomes.some((outcome) => outcome.reset_after !== null && outcome.reset_after > 0);
  }

  async function peek() {
    const about = asked;
    try {
      if (!document.hidden) {
        const { outcomes } = await decide({ ...about, caller: null, peek: true });
        if (about !== asked || peeking === 0) return;
        const rows = byId("outcomes").tBodies[0].rows;
        outcomes.forEach((outcome, place) => rows[place] && fill(rows[place], outcome));
        if (!unsettled(outcomes)) return;
      }
      if (performance.now() < peekUntilMs) peeking = setTimeout(peek, PEEK_EVERY_MS);
    } catch (error) {
      complain(error);
    }
  }

  // --- texts ---

  function duration(seconds) {
    if (seconds < 10) return `${Math.max(0.1, Math.ceil(seconds * 10) / 10).toFixed(1)} s`;
    if (seconds < 120) return `${Math.ceil(seconds)} s`;
    if (seconds < 7200) return `${Math.ceil(seconds / 60)} min`;
    if (seconds < 172_800) return `${Math.ceil(seconds / 3600)} h`;
    return `${Math.ceil(seconds / 86_400)} days`;
  }

  function amountText(tokens) {
    return tokens.toLocaleString("en", { maximumFractionDigits: 3 });
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(1);
  });
  byId("burst").addEventListener("click", () => ask(BURST));
})();
