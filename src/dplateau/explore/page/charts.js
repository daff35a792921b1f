// The three pictures, drawn by uPlot. Data come in pieces and are drawn as they come.

const dark = matchMedia("(prefers-color-scheme: dark)");
// The library's colors that are too dark for a dark page, and lighter ones of the same hue.
const ON_DARK = {
  "#0072B2": "#56B4E9", "#332288": "#9A8FE8", "#882255": "#E080B0", "#444444": "#C9C9C9", "#8C8C8C": "#9A9A9A",
  "#A59600": "#D6C62B", "#56B4E9": "#8FD0F5", "#009E73": "#35C79B", "#D55E00": "#F08A3C",
};
const color = (stated) => (dark.matches ? (ON_DARK[stated.toUpperCase()] ?? stated) : stated);
const ink = () => (dark.matches ? "#E8EAED" : "#000000");
const quiet = () => (dark.matches ? "#A3ACB8" : "#5B6470");
const grid = () => (dark.matches ? "#30363F" : "#DDDDDD");
const card = () => (dark.matches ? "#1D2127" : "#FFFFFF");
const forbidden = () => (dark.matches ? "#2A2F37" : "#ECECEC");
const CLAIM = "#0072B2";
const CHARGED = "#8C8C8C";

export const short = (value) => {
  if (value === null || value === undefined) return "";
  if (value >= 1e6 || value < 1e-3) return value === 0 ? "0" : value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(3)));
};

// As many digits as there are: nothing is rounded once more.
const digits = (value) =>
  value >= 1e6 || value < 1e-3 ? value.toExponential().replace("e+", "e") : String(value);

// An upper bound in three digits is never shown below its value.
export const up = (value) => {
  if (!value) return "";
  const nearest = Number(value.toPrecision(3));
  const size = 10 ** (Math.floor(Math.log10(value)) - 2);
  return digits(nearest >= value ? nearest : Number((nearest + size).toPrecision(3)));
};
export const down = (value) => {
  const nearest = Number(value.toPrecision(3));
  const size = 10 ** (Math.floor(Math.log10(value)) - 2);
  return digits(nearest <= value ? nearest : Number((nearest - size).toPrecision(3)));
};

// On a logarithmic axis: powers of ten, more where there are few of them, fewer where they would not fit.
const logSplits = (u, index, low, high) => {
  const decades = Math.log10(high / low);
  const digits = decades > 2.5 ? [1] : decades > 1.3 ? [1, 3] : [1, 2, 3, 5, 7];
  const every = Math.ceil(decades / Math.max(3, u.bbox.width / devicePixelRatio / 55));
  const found = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high) + 1e-9; decade += 1) {
    if (decade % every === 0) found.push(...digits.map((digit) => Number(`${digit}e${decade}`)));
  }
  return found.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
};
const many = new Intl.NumberFormat("en", { notation: "compact" });
const logarithmic = { splits: logSplits, filter: (u, splits) => splits, values: (u, splits) => splits.map(short) };

const axis = (label, extra = {}) => {
  const thin = { stroke: grid(), width: 1, ...("filter" in extra ? { filter: extra.filter } : {}) };
  const font = "12px system-ui, sans-serif";
  return { stroke: quiet(), grid: thin, ticks: thin, label, labelSize: 20, font, labelFont: font, ...extra };
};

// One place on the page with a picture in it. The picture is made anew when its lines change, else only its data.
class Plot {
  constructor(id, height) {
    this.place = document.getElementById(id);
    this.height = height;
    this.chart = null;
    this.shape = "";
    new ResizeObserver(() => this.#fit()).observe(this.place);
  }

  #size() {
    const narrow = innerWidth < 700;
    return { width: this.place.clientWidth, height: narrow ? Math.min(this.height, 250) : this.height };
  }

  #fit() {
    if (this.chart && this.place.clientWidth) this.chart.setSize(this.#size());
  }

  show(options, data) {
    const shape = JSON.stringify([options.series, dark.matches, this.place.clientWidth < 500]);
    if (this.chart && shape === this.shape) {
      this.chart.setData(data);
      return;
    }
    this.chart?.destroy();
    this.shape = shape;
    this.chart = new uPlot({ ...this.#size(), legend: { show: false }, ...options }, data, this.place);
  }
}

function swatch(stroke, dash, dots) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 30 12");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(svg.namespaceURI, "line");
  const look = { x1: 1, y1: 6, x2: 29, y2: 6, stroke, "stroke-width": dots ? 1.5 : 3, "stroke-dasharray": dash ?? "none" };
  for (const [name, value] of Object.entries(look)) line.setAttribute(name, value);
  svg.append(line);
  if (dots) {
    const dot = document.createElementNS(svg.namespaceURI, "circle");
    for (const [name, value] of Object.entries({ cx: 15, cy: 6, r: 3.5, fill: stroke })) dot.setAttribute(name, value);
    svg.append(dot);
  }
  return svg;
}

function legend(id, entries) {
  document.getElementById(id).replaceChildren(...entries.map(({ stroke, dash, dots, title, value }) => {
    const item = document.createElement("li");
    const number = document.createElement("b");
    number.textContent = value ?? "";
    item.append(swatch(stroke, dash, dots), title, " ", number);
    return item;
  }));
}

// Several lines, each with places of its own, over all their places; null where a line has no point.
function aligned(lines) {
  const places = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  return [places, ...lines.map((line) => {
    const known = new Map(line.x.map((x, i) => [x, line.y[i]]));
    return places.map((x) => known.get(x) ?? null);
  })];
}

const valueAt = (line, x) => {
  const i = line.x.indexOf(x);
  return i < 0 ? null : line.y[i];
};

// --- epsilon over the number of steps ---------------------------------------------------------------

export class StepsChart {
  constructor() {
    this.plot = new Plot("steps-plot", 340);
    this.clear();
    dark.addEventListener("change", () => this.draw());
  }

  clear() {
    this.lines = [];
    this.lower = { x: [], y: [] };
    this.steps = null;
    this.epsilon = null;
    this.last = null;
    this.exact = new Map();
  }

  // What each theorem says at the run's own length, from the table: there the legend shows the same.
  table(rows) {
    this.exact = new Map(rows.map((row) => [row.bound, row.epsilon]));
    this.draw();
  }

  preview({ lines, last }) {
    this.lines = lines.map((line) => ({ ...line, preview: true }));
    this.lower = { x: [], y: [] };
    this.last = last;
    this.draw();
  }

  line({ bound, x, y }) {
    const line = this.lines.find((one) => one.bound === bound);
    if (line && x.length) Object.assign(line, { x, y, preview: false });
    this.draw();
  }

  lowerPoint({ x, y }) {
    const points = [...this.lower.x.map((at, i) => [at, this.lower.y[i]]), [x, y]].sort((a, b) => a[0] - b[0]);
    this.lower = { x: points.map((p) => p[0]), y: points.map((p) => p[1]) };
    this.draw();
  }

  mark(steps, epsilon) {
    this.steps = steps;
    this.epsilon = epsilon;
    this.exact.clear();
    this.draw();
  }

  draw() {
    if (!this.lines.length) return;
    // Drawn from the back: the lowest hidden line lies above the others.
    const lines = [...this.lines].sort((a, b) => a.hidden - b.hidden || b.width - a.width);
    // Of each kind the lowest line is what matters; the others step back.
    const end = (line) => line.y.at(-1) ?? Infinity;
    const lowest = (hidden) => lines.filter((line) => line.hidden === hidden)
      .reduce((best, line) => (best === null || end(line) < end(best) ? line : best), null)?.bound;
    const [places, ...values] = aligned([...lines, this.lower]);
    // A logarithmic axis has no zero.
    const data = [places, ...[this.#area(places), ...values].map((line) => line.map((value) => value || null))];
    const series = [
      {},
      { stroke: "transparent", fill: forbidden(), fillTo: (u) => u.scales.y.min, points: { show: false }, spanGaps: true },
      ...lines.map((line) => ({
        stroke: color(line.color) + (line.bound === lowest(true) || line.bound === lowest(false) ? "" : "80"),
        width: line.hidden ? line.width + 0.4 : 1.8, dash: line.hidden ? [] : [7, 5],
        points: { show: false }, spanGaps: true, label: line.preview ? "preview" : "full",
        // Between two points of a preview nothing was computed: there the line is level with the later one,
        // the larger of both, and so never below the bound that it stands for.
        paths: line.preview ? uPlot.paths.stepped({ align: -1 }) : uPlot.paths.linear(),
      })),
      { stroke: ink(), width: 1.2, dash: [2, 4], spanGaps: true, points: { show: true, size: innerWidth < 700 ? 3 : 5, fill: ink(), stroke: ink() } },
    ];
    this.plot.show({
      scales: { x: { time: false, distr: 3, range: () => [this.#first(), this.last] }, y: { distr: 3, range: () => this.#range() } },
      axes: [
        axis("steps", { ...logarithmic, values: (u, splits) => splits.map((value) => many.format(value)) }),
        axis("epsilon", { ...logarithmic, size: 52 }),
      ],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      hooks: { draw: [(u) => this.#mark(u)], setCursor: [(u) => this.#name(u.cursor.idx)] },
      series,
    }, data);
    this.#name(null);
    this.#tell();
  }

  // Between two exact examples nothing was computed: there the shade reaches only the lower of them.
  #area(places) {
    const { x, y } = this.lower;
    return places.map((place) => {
      const right = x.findIndex((at) => at >= place);
      if (right < 0 || place < x[0]) return null;
      const near = x[right] === place ? [right - 1, right, right + 1] : [right - 1, right];
      return Math.min(...near.filter((i) => i >= 0 && i < y.length).map((i) => y[i]));
    });
  }

  // Ordered batches are looked at after whole epochs only.
  #first() {
    return 10 ** Math.floor(Math.log10(Math.min(...this.lines.map((line) => line.x[0] ?? 1), this.last / 10)));
  }

  #range() {
    const ends = (lines) => lines.map((line) => line.y.at(-1)).filter((value) => value > 0);
    const best = Math.min(...ends(this.lines.filter((line) => !line.hidden)), Infinity);
    const all = [...this.lines.flatMap((line) => line.y), ...this.lower.y].filter((value) => value > 0);
    const limit = Number.isFinite(best) ? best * 4 : Infinity;
    const high = Math.min(Math.max(...all, 1e-3), limit);
    const least = Math.max(Math.min(...all), high * 1e-4);
    return [least * 0.75, Math.max(high, least * 4) * 1.15];
  }

  #mark(u) {
    if (!this.steps) return;
    const { ctx } = u;
    const x = u.valToPos(this.steps, "x", true);
    ctx.save();
    ctx.strokeStyle = quiet();
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, u.bbox.top);
    ctx.lineTo(x, u.bbox.top + u.bbox.height);
    ctx.stroke();
    const small = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.fillStyle = quiet();
    ctx.font = small;
    const text = `your run: ${this.steps.toLocaleString("en")} steps`;
    const late = x + ctx.measureText(text).width + 10 * devicePixelRatio > u.bbox.left + u.bbox.width;
    ctx.textAlign = late ? "right" : "left";
    const place = [x + (late ? -6 : 6) * devicePixelRatio, u.bbox.top + 13 * devicePixelRatio];
    ctx.strokeStyle = card(); // lines that pass behind the words stay out of them
    ctx.lineWidth = 5 * devicePixelRatio;
    ctx.strokeText(text, ...place);
    ctx.fillText(text, ...place);
    if (this.epsilon) {
      ctx.fillStyle = color(CLAIM);
      ctx.strokeStyle = card();
      ctx.lineWidth = 2 * devicePixelRatio;
      ctx.beginPath();
      ctx.arc(x, u.valToPos(this.epsilon, "y", true), 6 * devicePixelRatio, 0, 7);
      ctx.fill();
      ctx.stroke();
    }
    ctx.restore();
  }

  // Values in the legend: where the pointer is, else at the run's own length.
  #name(index) {
    const place = index === null || index === undefined ? this.steps : this.plot.chart.data[0][index];
    const said = (line) => (place === this.steps && this.exact.get(line.bound)) || up(valueAt(line, place));
    const entries = [...this.lines]
      .map((line) => ({ line, value: said(line) }))
      .sort((a, b) => (Number(a.value) || Infinity) - (Number(b.value) || Infinity))
      .map(({ line, value }) => ({ stroke: color(line.color), dash: line.hidden ? null : "6 4", title: line.title, value }));
    if (this.lower.x.length) {
      const value = valueAt(this.lower, place);
      entries.push({ stroke: ink(), dash: "2 3", dots: true, title: "exact lower bound", value: value ? down(value) : "" });
    }
    legend("steps-legend", entries);
  }

  // The same in words and as a table, for those who do not see the picture.
  #tell() {
    const at = this.steps ?? this.last;
    const said = this.lines.map((line) => [line.title, valueAt(line, at)]).filter(([, value]) => value)
      .sort((a, b) => a[1] - b[1]).map(([title, value]) => `${title} ${up(value)}`);
    this.plot.place.setAttribute("aria-label", `Epsilon over the number of steps. At ${at} steps: ${said.join(", ")}.`);
    const table = document.createElement("table");
    const places = [...new Set([1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, this.steps])].filter((x) => x && x <= this.last).sort((a, b) => a - b);
    const near = (line, x) => line.x.reduce((best, at) => (Math.abs(Math.log(at / x)) < Math.abs(Math.log(best / x)) ? at : best), line.x[0]);
    const head = table.createTHead().insertRow();
    for (const text of ["steps", ...this.lines.map((line) => line.title)]) {
      head.append(Object.assign(document.createElement("th"), { textContent: text, scope: "col" }));
    }
    for (const x of places) {
      const row = table.insertRow();
      row.insertCell().textContent = x.toLocaleString("en");
      for (const line of this.lines) {
        const place = near(line, x);
        row.insertCell().textContent = Math.abs(Math.log(place / x)) < 0.15 ? up(valueAt(line, place)) : "";
      }
    }
    document.getElementById("steps-table").replaceChildren(table);
  }
}

// --- one proof over deltas, and what it leaves to attacks -------------------------------------------

class ProofChart {
  constructor(id, height) {
    this.plot = new Plot(`${id}-plot`, height);
    this.id = id;
    this.lines = new Map();
    dark.addEventListener("change", () => this.draw());
  }

  start() {
    this.old = true;
  }

  // The first piece of a new answer replaces all that was there.
  line(message, claimed) {
    if (this.old) this.lines.clear();
    this.old = false;
    this.lines.set(message.bound, { ...message, claimed, stroke: claimed ? CLAIM : CHARGED });
    this.draw();
  }

  series() {
    return [...this.lines.values()].map((line) => ({
      stroke: color(line.stroke), width: line.claimed ? 2.4 : 1.6, dash: line.hidden ? [] : [7, 5],
      points: { show: false }, spanGaps: true,
    }));
  }

  entries() {
    return [...this.lines.values()].map((line) => ({
      stroke: color(line.stroke), dash: line.hidden ? null : "6 4", title: line.title,
    }));
  }
}

export class DeltaChart extends ProofChart {
  constructor() {
    super("delta", 280);
    this.claim = null;
  }

  mark(delta, epsilon) {
    this.claim = [delta, epsilon];
    this.draw();
  }

  draw() {
    if (!this.lines.size) return;
    const lines = [...this.lines.values()];
    const top = Math.max(...lines.flatMap((line) => line.y.filter((value) => value !== null)));
    this.plot.show({
      scales: { x: { time: false, distr: 3 }, y: { range: () => [0, top * 1.08] } },
      axes: [axis("delta", logarithmic), axis("epsilon", { size: 52, values: (u, all) => all.map(short) })],
      cursor: { show: false },
      hooks: { draw: [(u) => this.#mark(u)] },
      series: [{}, ...this.series()],
    }, aligned(lines));
    legend("delta-legend", this.entries());
  }

  #mark(u) {
    if (!this.claim) return;
    const { ctx } = u;
    ctx.save();
    ctx.fillStyle = color(CLAIM);
    ctx.beginPath();
    ctx.arc(u.valToPos(this.claim[0], "x", true), u.valToPos(this.claim[1], "y", true), 6 * devicePixelRatio, 0, 7);
    ctx.fill();
    ctx.restore();
  }
}

export class TradeoffChart extends ProofChart {
  constructor() {
    super("tradeoff", 280);
  }

  draw() {
    if (!this.lines.size) return;
    const lines = [...this.lines.values()];
    const claimed = lines.find((line) => line.claimed);
    const data = aligned([...lines, { x: [0, 1], y: [1, 0] }]);
    const series = this.series();
    const place = lines.indexOf(claimed);
    if (place >= 0) series[place].fill = forbidden();
    this.plot.show({
      scales: { x: { time: false, range: () => [0, 1] }, y: { range: () => [0, 1] } },
      axes: [axis("share of false alarms"), axis("share of missed records", { size: 46 })],
      cursor: { show: false },
      series: [{}, ...series, { stroke: quiet(), width: 1.2, dash: [2, 4], points: { show: false }, spanGaps: true }],
    }, data);
    legend("tradeoff-legend", [...this.entries(), { stroke: quiet(), dash: "2 3", title: "nothing is learned" }]);
  }
}
