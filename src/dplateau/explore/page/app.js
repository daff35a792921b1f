// The page: settings on one side, what is proved about them on the other.

import { Asker, Refused, messages } from "./asking.js";
import { DeltaChart, StepsChart, TradeoffChart } from "./charts.js";
import { Form } from "./form.js";

const byId = (id) => document.getElementById(id);
const text = (id, words) => { byId(id).textContent = words; };
const LARGEST_FILE = 2_000_000;

const steps = new StepsChart();
const delta = new DeltaChart();
const tradeoff = new TradeoffChart();
let form;
let claim = null;
let start = "";

// --- what is shown ----------------------------------------------------------------------------------

// What is grayed belongs to an earlier setting, or to one that a slider has already passed.
const PARTS = { claim: "claim", preview: "over-steps", over_delta: "over-delta", tradeoff: "tradeoff", bounds: "bounds" };

function gray(ids) {
  for (const id of ids) {
    byId(id).classList.add("updating");
    byId(id).setAttribute("aria-busy", "true");
  }
}

function fresh(id) {
  byId(id).classList.remove("updating");
  byId(id).removeAttribute("aria-busy");
}

const asker = new Asker({
  asked() {
    gray(Object.values(PARTS));
    text("state", "computing the claim …");
    text("steps-state", "computing a preview …");
    for (const chart of [delta, tradeoff]) chart.start();
    if (!byId("lost").hidden) asker.hooks.lost();
  },
  message(message, query, stale) {
    show[message.kind]?.(message, query, stale);
    if (message.kind in PARTS && !stale) fresh(PARTS[message.kind]);
  },
  refused(errors) {
    form.showErrors(errors);
    claim = null;
    nothing(Object.values(errors).join("; "));
  },
  lost() {
    byId("lost").hidden = false;
    gray(Object.values(PARTS));
    text("state", "not up to date: the server has stopped");
  },
  found() {
    byId("lost").hidden = true;
    text("state", "computing the claim …");
  },
  // For tests, and whoever else drives the page: what was answered to the end.
  finished(name, query) {
    document.body.dataset[name] = query;
  },
});

const show = {
  claim(message, query, stale) {
    claim = { ...message, query };
    if (!stale) form.showErrors({});
    const epsilon = byId("epsilon");
    epsilon.textContent = message.shown;
    epsilon.value = message.shown;
    document.body.dataset.epsilon = message.epsilon;
    text("at", `at delta ${message.delta}, after ${message.steps.toLocaleString("en")} steps`);
    text("by", `Proved by: ${message.title}. The number is rounded up.`);
    gain(claim);
    if (!stale) text("state", "");
    byId("bars").hidden = false;
    steps.mark(message.steps, message.epsilon);
    delta.mark(Number(message.delta), message.epsilon);
  },
  bounds(message) {
    gain({ ...claim, ...message });
    steps.table(message.applying);
    byId("applying").replaceChildren(...message.applying.map((row) => {
      const line = document.createElement("tr");
      if (row.bound === claim.bound) line.className = "best";
      const holds = row.hidden_state ? "while the steps stay hidden" : "even if every step is seen";
      for (const words of [row.title, row.epsilon, holds, row.citation]) line.insertCell().textContent = words;
      return line;
    }));
    text("silent-name", `${message.silent.length} theorems say nothing about this run, and why`);
    byId("silent").replaceChildren(...message.silent.flatMap((row) => [
      Object.assign(document.createElement("dt"), { textContent: row.title }),
      Object.assign(document.createElement("dd"), { textContent: row.reason }),
    ]));
  },
  words(message) {
    text("attack", message.attack);
    byId("doubts").replaceChildren(...message.doubts.map((words) =>
      Object.assign(document.createElement("p"), { className: "doubt", textContent: `Take note: ${words}.` })));
    byId("assumptions").replaceChildren(...message.assumptions.flatMap(({ who, texts }) => {
      const list = document.createElement("ul");
      list.append(...texts.map((words) => Object.assign(document.createElement("li"), { textContent: words })));
      return [Object.assign(document.createElement("h3"), { textContent: who }), list];
    }));
  },
  preview(message) {
    steps.preview(message);
    tellPreview();
  },
  line(message) {
    steps.line(message);
    tellPreview();
  },
  lower(message) {
    steps.lowerPoint(message);
    text("steps-state", "looking for what no claim can undercut …");
  },
  lower_done(message) {
    text("steps-state", message.notes.length ? `No lower bound in places: ${message.notes[0]}` : "complete");
  },
  stopped(message) {
    text("steps-state", `stopped after ${message.seconds} seconds; what is drawn is proved`);
  },
  over_delta(message) {
    delta.line(message, message.bound === claim?.bound);
  },
  tradeoff(message) {
    tradeoff.line(message, message.bound === claim?.bound);
  },
};

// A preview is called one until its last line is drawn in full.
function tellPreview() {
  const { length } = steps.lines.filter((line) => line.preview);
  text("steps-state", length
    ? `preview: ${length} of ${steps.lines.length} lines have few proved points yet and are level up to the next`
    : "looking for what no claim can undercut …");
}

const SEEN = { last: "if only the final model is seen", checkpoints: "if those models are seen", all: "as every step is seen" };

function gain({ ratio, composition, composition_shown, shown, epsilon, hidden_state, query }) {
  const gained = ratio && hidden_state;
  text("gain", gained
    ? `${ratio} times smaller than ${composition_shown}, the best proof that counts every step`
    : "No gain from hiding steps here: every one of them counts.");
  const most = Math.max(composition ?? 0, epsilon);
  const width = (value) => `${Math.max(0.5, (45 * value) / most)}%`;
  byId("bar-claim").style.width = width(epsilon);
  byId("bar-charged").style.width = width(composition ?? epsilon);
  byId("bar-charged").parentElement.hidden = !gained;
  text("bar-claim-text", `${shown} ${SEEN[new URLSearchParams(query).get("release")]}`);
  text("bar-charged-text", `${composition_shown ?? shown} if every step were seen`);
}

function nothing(why) {
  fresh("claim");
  text("epsilon", "–");
  for (const id of ["at", "gain", "attack", "by", "steps-state"]) text(id, "");
  byId("doubts").replaceChildren();
  byId("bars").hidden = true;
  text("state", `Nothing is claimed: ${why}`);
  delete document.body.dataset.epsilon;
  for (const id of ["certificate", "report"]) {
    byId(id).removeAttribute("href");
    byId(id).setAttribute("aria-disabled", "true");
  }
}

// --- what is asked ----------------------------------------------------------------------------------

function changed() {
  history.replaceState(null, "", `#${form.query}`);
  for (const id of ["certificate", "report"]) {
    byId(id).href = `${id}?${form.query}`;
    byId(id).removeAttribute("aria-disabled");
  }
  text("found", "");
  byId("use").hidden = true;
  asker.ask(form.query);
}

function take(query) {
  form.write(query);
  changed();
}

// An address that leaves fields out means their defaults.
function reopen() {
  form.write(start);
  take(location.hash.slice(1));
}

let question = null;
async function askFor(name, words) {
  question?.abort();
  question = new AbortController();
  const { signal } = question;
  byId("use").hidden = true;
  text("found", words);
  try {
    for await (const message of messages(`${name}?${form.query}`, signal)) {
      if (message.kind === "refused") throw new Refused(message.errors);
      if (message.kind === "stopped") text("found", `Not found within ${message.seconds} seconds.`);
      if (message.kind === "died") text("found", "The search ended early; ask again.");
      if (message.kind !== "found") continue;
      text("found", message.text);
      byId("use").hidden = message.field === null;
      byId("use").onclick = () => take(new URLSearchParams({ [message.field]: message.value }).toString());
    }
  } catch (problem) {
    if (signal.aborted) return;
    text("found", problem instanceof Refused ? problem.message : "The server does not answer.");
  }
}

// --- taking it away, and checking what others bring -------------------------------------------------

// What is copied is about the setting on the page, or nothing is.
function copyClaim(part, what) {
  if (claim?.query === form.query) copy(claim[part], what);
  else text("copied", "There is no claim about this setting yet.");
}

async function copy(words, what, status = "copied") {
  try {
    await navigator.clipboard.writeText(words);
    text(status, `${what} copied.`);
  } catch {
    text(status, `This browser does not let the page copy. Copy it from here: ${words}`);
  }
}

async function check(file) {
  const verdict = byId("verdict");
  verdict.hidden = false;
  verdict.className = "verdict";
  text("verdict-name", `Verifying ${file.name} …`);
  for (const id of ["verdict-claim", "verdict-text", "verdict-page"]) text(id, "");
  byId("verdict-show").hidden = true;
  let found;
  try {
    if (file.size > LARGEST_FILE) throw new Refused({ "": "the file is too large for a certificate" });
    const response = await fetch("verify", { method: "POST", body: await file.text() });
    found = await response.json();
    if (found.kind === "refused") throw new Refused(found.errors);
  } catch (problem) {
    verdict.classList.add("bad");
    text("verdict-name", "Not verified");
    text("verdict-text", problem instanceof Refused ? `${file.name}: ${problem.message}` : "The server does not answer.");
    verdict.focus();
    return;
  }
  verdict.classList.add(found.ok ? "good" : "bad");
  text("verdict-name", found.ok ? "Verified" : "Not verified");
  text("verdict-claim", found.claim ?? "");
  const told = found.ok
    ? `${file.name} was derived again by independent code. ${(found.released ?? []).join(" ")}`
    : `${file.name}: ${found.problem}`;
  text("verdict-text", told);
  text("verdict-page", found.page);
  byId("verdict-show").hidden = !found.query;
  byId("verdict-show").onclick = () => take(found.query);
  verdict.focus();
}

function listen() {
  for (const button of document.querySelectorAll("[data-set]")) {
    button.addEventListener("click", () => {
      const before = new URLSearchParams(start);
      const now = new URLSearchParams(button.dataset.set);
      for (const [name, value] of now) before.set(name, value);
      take(before.toString());
    });
  }
  byId("ask-noise").addEventListener("click", () => askFor("noise", "Searching for the smallest noise …"));
  byId("ask-length").addEventListener("click", () => askFor("length", "Searching for the longest run …"));
  byId("copy-python").addEventListener("click", () => copyClaim("python", "The program was"));
  byId("copy-command").addEventListener("click", () => copyClaim("command", "The command was"));
  const again = `dplateau explore --address ${location.origin}${location.pathname}`;
  text("again", again);
  byId("copy-again").addEventListener("click", () => copy(again, "The command was", "state"));
  byId("file").addEventListener("change", ({ target }) => {
    if (target.files.length) check(target.files[0]);
    target.value = "";
  });
  byId("verdict-close").addEventListener("click", () => { byId("verdict").hidden = true; });
  addEventListener("dragover", (event) => { event.preventDefault(); byId("drop").hidden = false; });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("drop").hidden = true; });
  addEventListener("drop", (event) => {
    event.preventDefault();
    byId("drop").hidden = true;
    if (event.dataTransfer.files.length) check(event.dataTransfer.files[0]);
  });
  addEventListener("hashchange", reopen);
  byId("fields").addEventListener("submit", (event) => event.preventDefault());
}

const { fields, query } = await (await fetch("setup")).json();
start = query;
form = new Form(fields, { "": byId("fields"), Questions: byId("target-place") }, changed);
listen();
reopen();
