// Questions to the server. A newer question makes the older one stale: its connection is closed, which ends
// the process that was computing, and whatever still arrives of it is dropped.

// In milliseconds: how long a question may wait for its first answer before a newer one replaces it (twice as
// long as the last one took, within limits), and the time between two looks at a server that is gone.
const FIRST_ANSWER = 700;
const LONGEST_MOMENT = 4000;
const AGAIN = 1000;

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

// One kind of question. While a slider moves, a question that has not had its first answer yet is allowed a
// moment for it, so that something is drawn on the way; the newest one is always asked last.
class Lane {
  constructor(name, first, hooks) {
    Object.assign(this, { name, first, hooks });
    this.turn = null;
    this.latest = null;
    this.timer = null;
    this.usual = 0; // how long the first answer took the last time
  }

  ask(query) {
    this.latest = query;
    const turn = this.turn;
    const moment = Math.min(Math.max(FIRST_ANSWER, 2 * this.usual), LONGEST_MOMENT);
    const wait = turn && !turn.seen ? turn.begun + moment - performance.now() : 0;
    clearTimeout(this.timer);
    if (wait > 0) this.timer = setTimeout(() => this.start(), wait);
    else this.start();
  }

  get stale() {
    return this.turn?.query !== this.latest;
  }

  start() {
    this.stop();
    this.turn = { query: this.latest, abort: new AbortController(), seen: false, begun: performance.now() };
    this.#listen(this.turn);
  }

  stop() {
    clearTimeout(this.timer);
    this.turn?.abort.abort();
    this.turn = null;
  }

  #answered(turn) {
    turn.seen = true;
    this.usual = performance.now() - turn.begun;
    if (this.stale) this.start();
  }

  async #listen(turn, tries = 1) {
    try {
      for await (const message of messages(`${this.name}?${turn.query}`, turn.abort.signal)) {
        if (turn !== this.turn) return;
        if (message.kind === "died" && tries < 3) return this.#listen(turn, tries + 1);
        if (message.kind === "refused") throw new Refused(message.errors);
        this.hooks.message(message, turn.query, this.stale);
        if (message.kind === this.first) this.#answered(turn);
      }
      if (turn === this.turn && !this.stale) this.hooks.finished(this.name, turn.query);
    } catch (problem) {
      if (turn !== this.turn) return;
      if (!(problem instanceof Refused)) return this.hooks.gone();
      if (this.name === "claim" && !this.stale) this.hooks.refused(problem.errors);
      this.#answered(turn);
    }
  }
}

// Asks about the newest setting only, and looks for a server that is gone until it is back.
export class Asker {
  constructor(hooks) {
    this.hooks = { ...hooks, gone: () => this.#wait() };
    this.lanes = [new Lane("claim", "claim", this.hooks), new Lane("curves", "preview", this.hooks)];
    this.waiting = false;
  }

  ask(query) {
    this.hooks.asked();
    for (const lane of this.lanes) {
      if (this.waiting) lane.latest = query;
      else lane.ask(query);
    }
  }

  async #wait() {
    for (const lane of this.lanes) lane.stop();
    if (this.waiting) return;
    this.waiting = true;
    this.hooks.lost();
    for (let answer = null; !answer?.ok; ) {
      await new Promise((done) => setTimeout(done, AGAIN));
      answer = await fetch("setup", { cache: "no-store" }).catch(() => null);
    }
    this.waiting = false;
    this.hooks.found();
    for (const lane of this.lanes) lane.start();
  }
}
