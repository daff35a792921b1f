// The settings: built from what the server says can be set, so that no limit is written twice.

const SPOTS = 1000; // places on a slider

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

export class Form {
  constructor(fields, places, changed) {
    this.fields = fields;
    this.changed = changed;
    this.values = {};
    this.parts = {};
    const groups = {};
    for (const [name, field] of Object.entries(fields)) {
      const place = places[field.group] ?? (groups[field.group] ??= this.#group(field.group, places[""]));
      place.append(field.kind === "number" ? this.#number(name, field) : this.#choice(name, field));
    }
    this.whole = element("p", { className: "whole-error", id: "whole-error" });
    this.whole.setAttribute("role", "alert");
    places[""].prepend(this.whole);
  }

  #group(name, place) {
    const group = element("fieldset", { className: "group" }, element("legend", { textContent: name }));
    place.append(group);
    return group;
  }

  #notes(name, field, input) {
    const help = element("p", { className: "help", id: `${name}-help`, textContent: field.help });
    const error = element("p", { className: "error", id: `${name}-error` });
    error.setAttribute("role", "alert");
    input.setAttribute("aria-describedby", `${name}-error ${name}-help`);
    return [error, help];
  }

  #number(name, field) {
    const input = element("input", { type: "text", id: name, name, inputMode: "decimal", placeholder: field.none ?? "" });
    const slider = element("input", { type: "range", id: `${name}-slider`, min: 0, max: SPOTS, step: 1 });
    slider.setAttribute("aria-label", `${field.label}, slider`);
    input.addEventListener("input", () => this.#typed(name, input.value));
    slider.addEventListener("input", () => {
      input.value = this.#at(field, Number(slider.value));
      slider.setAttribute("aria-valuetext", this.#spoken(field, input.value));
      this.#typed(name, input.value, true);
    });
    const label = element("label", { htmlFor: name, textContent: field.label });
    const row = element("div", { className: "row" }, label, input, slider);
    const [error, help] = this.#notes(name, field, input);
    const part = element("div", { className: "field" }, row, error, help);
    this.parts[name] = { part, error, invalid: [input], write: (text) => {
      input.value = text;
      this.#move(field, slider, text);
    }, move: (text) => this.#move(field, slider, text) };
    return part;
  }

  #choice(name, field) {
    const options = Object.entries(field.options);
    const few = options.length <= 3;
    let part, write, invalid, error, help;
    if (few) {
      part = element("fieldset", { className: "field" }, element("legend", { textContent: field.label }));
      const radios = options.map(([value, text]) => {
        const radio = element("input", { type: "radio", name, value, id: `${name}-${value}` });
        radio.addEventListener("change", () => this.#typed(name, value));
        part.append(element("label", { className: "choice" }, radio, text));
        return radio;
      });
      [error, help] = this.#notes(name, field, part);
      write = (text) => radios.forEach((radio) => { radio.checked = radio.value === text; });
      invalid = radios;
    } else {
      const select = element("select", { id: name, name });
      select.append(...options.map(([value, text]) => element("option", { value, textContent: text })));
      select.addEventListener("change", () => this.#typed(name, select.value));
      [error, help] = this.#notes(name, field, select);
      part = element("div", { className: "field" }, element("label", { htmlFor: name, textContent: field.label }), select);
      write = (text) => { select.value = text; };
      invalid = [select];
    }
    part.append(error, help);
    this.parts[name] = { part, error, invalid, write };
    return part;
  }

  // Sliders are logarithmic; an end may stand for zero or for no limit.
  #at(field, spot) {
    const first = field.zero ? 1 : 0;
    const last = field.none ? SPOTS - 1 : SPOTS;
    if (spot < first) return "0";
    if (spot > last) return "";
    const [low, high] = field.slider;
    const value = low * (high / low) ** ((spot - first) / (last - first));
    const rounded = field.whole ? Math.round(Number(value.toPrecision(3))) : Number(value.toPrecision(3));
    return String(rounded);
  }

  #move(field, slider, text) {
    const value = Number(text);
    const first = field.zero ? 1 : 0;
    const last = field.none ? SPOTS - 1 : SPOTS;
    const [low, high] = field.slider;
    let spot = first + (last - first) * (Math.log(value / low) / Math.log(high / low));
    if (text.trim() === "") spot = field.none ? SPOTS : Number(slider.value);
    else if (value === 0) spot = 0;
    if (!Number.isNaN(spot)) slider.value = Math.min(Math.max(Math.round(spot), 0), SPOTS);
    slider.setAttribute("aria-valuetext", this.#spoken(field, text));
  }

  #spoken(field, text) {
    if (text.trim() === "") return field.none ?? "empty";
    return Number(text) === 0 && field.zero ? field.zero : text;
  }

  #typed(name, text, bySlider = false) {
    this.values[name] = text;
    if (!bySlider) this.parts[name].move?.(text);
    this.#showOnly();
    this.changed();
  }

  #showOnly() {
    for (const [name, field] of Object.entries(this.fields)) {
      this.parts[name].part.hidden = !this.#counts(field);
    }
  }

  #counts(field) {
    return !field.only || this.values[field.only[0]] === field.only[1];
  }

  get query() {
    const counting = Object.entries(this.values).filter(([name]) => this.#counts(this.fields[name]));
    return new URLSearchParams(counting).toString();
  }

  // Take over what a query string says; fields that it does not name stay as they are.
  write(query) {
    for (const [name, text] of new URLSearchParams(query)) {
      if (!(name in this.fields)) continue;
      this.values[name] = text;
      this.parts[name].write(text);
    }
    this.#showOnly();
  }

  showErrors(errors) {
    for (const [name, { error, invalid }] of Object.entries(this.parts)) {
      const text = errors[name] ?? "";
      if (error.textContent !== text) error.textContent = text;
      for (const input of invalid) input.setAttribute("aria-invalid", String(text !== ""));
    }
    this.whole.textContent = errors[""] ?? "";
  }
}
