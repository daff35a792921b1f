// Questions to the server. A newer question makes the older one stale: its connection is closed, which ends
// the process that was computing, and whatever still arrives of it is dropped.

const FIRST_ANSWER = 700; // how long a question may wait for its first answer before a newer one replaces it
const AGAIN = 1000; // between two looks at a server that is gone, in milliseconds

export class Refused extends Error {
  constructor(errors) {
    super(Object.values(errors).join("; "));
    this.errors = errors;
  }
}

// Yield the messages of an answer, one in each line; empty lines only say that the server is there.
export async function* messages(path, signal) {
  const response = await fetch(path, { signal, cache: "no-store" });
  if (response.status === 422) throw new Refused((await response.json()).errors);
  if (!response.ok) throw new TypeError(`the server answered ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}

// Asks about the newest setting only. While a slider moves, a question that has not had its first answer yet
// is allowed a moment for it, so that something is drawn on the way; the newest one is always asked last.
export class Asker {
  constructor({ started, message, refused, lost, found, finished }) {
    Object.assign(this, { started, message, refused, lost, found, finished });
    this.turn = null;
    this.latest = null;
    this.timer = null;
  }

  ask(query) {
    this.latest = query;
    const turn = this.turn;
    const wait = turn && !turn.seen ? turn.begun + FIRST_ANSWER - performance.now() : 0;
    clearTimeout(this.timer);
    if (wait > 0) this.timer = setTimeout(() => this.#start(), wait);
    else this.#start();
  }

  get stale() {
    return this.turn !== null && this.turn.query !== this.latest;
  }

  #start() {
    clearTimeout(this.timer);
    this.turn?.abort.abort();
    const turn = { query: this.latest, abort: new AbortController(), seen: false, begun: performance.now(), open: 2 };
    this.turn = turn;
    this.started();
    for (const name of ["claim", "curves"]) this.#listen(turn, name);
  }

  #answered(turn) {
    turn.seen = true;
    if (this.stale) this.#start();
  }

  async #listen(turn, name, tries = 1) {
    try {
      for await (const message of messages(`${name}?${turn.query}`, turn.abort.signal)) {
        if (turn !== this.turn) return;
        if (message.kind === "died" && tries < 3) return this.#listen(turn, name, tries + 1);
        if (message.kind === "refused") throw new Refused(message.errors);
        this.message(message);
        if (message.kind === "claim") this.#answered(turn);
      }
      turn.open -= 1;
      if (turn === this.turn && turn.open === 0) this.finished();
    } catch (problem) {
      if (turn !== this.turn) return;
      if (problem instanceof Refused) {
        if (name === "claim") this.refused(problem.errors);
        this.#answered(turn);
      } else this.#wait(turn);
    }
  }

  // The server is gone: look for it until it is back, then ask again.
  async #wait(turn) {
    turn.abort.abort();
    this.turn = null;
    this.lost();
    for (;;) {
      await new Promise((done) => setTimeout(done, AGAIN));
      if (this.turn) return; // something was asked meanwhile, and that waits by itself
      const answer = await fetch("setup", { cache: "no-store" }).catch(() => null);
      if (this.turn) return;
      if (answer?.ok) break;
    }
    this.found();
    this.#start();
  }
}
