// One control for each variable: a slider with a number box, or a menu.

import { niceStep, pretty, short, snapped } from "./format.js";

let count = 0;

export function makeField(told, changed) {
  return told.categories ? new Menu(told, changed) : new Slider(told, changed);
}

export class Menu {
  constructor(told, changed) {
    this.name = told.name;
    this.levels = told.categories;
    const id = `field-${(count += 1)}`;
    this.menu = element("select", { id });
    this.menu.append(...this.levels.map((level, i) => new Option(String(level), i)));
    this.menu.addEventListener("change", () => changed(this.name, this.value));
    const label = element("label", { htmlFor: id, textContent: pretty(told.name) });
    this.element = element("div", { className: "field" });
    const top = element("div", { className: "field-top" });
    top.append(label, this.menu);
    this.element.append(top);
    this.element.dataset.name = told.name;
  }

  get value() {
    return this.levels[this.menu.value];
  }

  set(value) {
    this.menu.value = String(this.levels.indexOf(value));
  }
}

export class Slider {
  constructor(told, changed) {
    Object.assign(this, { name: told.name, low: told.low, high: told.high, changed });
    this.step = niceStep(told.low, told.high);
    const id = `field-${(count += 1)}`;
    this.box = element("input", { type: "number", id, step: "any", autocomplete: "off" });
    this.range = element("input", { type: "range", step: "any", min: told.low, max: told.high });
    this.range.setAttribute("aria-label", `${pretty(told.name)}, slider`);
    this.note = element("p", { className: "field-note", id: `${id}-note` });
    this.box.setAttribute("aria-describedby", this.note.id);
    this.marks = element("div", { className: "marks" });
    this.marks.setAttribute("aria-hidden", "true");
    this.meanings = element("p", { className: "meanings" });
    this.element = this.assembled(told, id);
    this.range.addEventListener("input", () => this.dragged());
    this.range.addEventListener("keydown", (event) => this.pressed(event));
    this.box.addEventListener("input", () => this.typed());
    this.box.addEventListener("blur", () => this.set(this.value));
    this.value = told.typical;
  }

  assembled(told, id) {
    const top = element("div", { className: "field-top" });
    const ends = element("div", { className: "ends" });
    ends.setAttribute("aria-hidden", "true");
    for (const end of [told.low, told.high]) {
      ends.append(element("span", { textContent: short(end, this.step) }));
    }
    top.append(element("label", { htmlFor: id, textContent: pretty(told.name) }), this.box);
    const whole = element("div", { className: "field" });
    const rail = element("div", { className: "rail" });
    rail.append(this.range, this.marks);
    whole.append(top, rail, ends, this.meanings, this.note);
    whole.dataset.name = told.name;
    return whole;
  }

  set(value) {
    this.value = value;
    this.box.value = short(value, this.step);
    this.moved();
    this.complain("");
  }

  // A mark above the rail, and below it what it means.
  mark(kind, word, value) {
    const found = this.marks.querySelector(`.${kind}`) ?? element("i", { className: kind });
    found.hidden = value === null || value < this.low || value > this.high;
    found.style.setProperty("--at", String(this.share(value ?? this.low)));
    this.marks.append(found);
    const meaning = this.meanings.querySelector(`[data-kind=${kind}]`) ?? element("span", {});
    meaning.dataset.kind = kind;
    meaning.hidden = value === null;
    const told = value === null ? "" : `${word} ${short(value, this.step)}`;
    meaning.replaceChildren(element("i", { className: kind }), told);
    this.meanings.append(meaning);
  }

  share(value) {
    return Math.min(1, Math.max(0, (value - this.low) / (this.high - this.low || 1)));
  }

  moved() {
    this.range.value = String(this.value);
    this.range.style.setProperty("--at", String(this.share(this.value)));
    this.range.setAttribute("aria-valuetext", short(this.value, this.step));
  }

  // The ends of a feasible interval may lie between two steps.
  dragged() {
    const raw = Number(this.range.value);
    this.choose(Math.min(this.high, snapped(raw, this.step, this.low)));
  }

  choose(value) {
    this.set(value);
    this.changed(this.name, value);
  }

  typed() {
    const value = this.box.valueAsNumber;
    if (!Number.isFinite(value)) {
      this.complain("Expected a number. The last one still holds.");
      return;
    }
    this.value = value;
    this.moved();
    this.complain("");
    this.changed(this.name, value);
  }

  complain(text) {
    const outside = this.value < this.low || this.value > this.high;
    this.box.setAttribute("aria-invalid", text ? "true" : "false");
    this.note.textContent = text || (outside ? this.outside : "");
    this.note.classList.toggle("fault", text !== "");
  }

  get outside() {
    return `Outside ${short(this.low, this.step)} to ${short(this.high, this.step)}`;
  }

  pressed(event) {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    const ends = { Home: this.low, End: this.high };
    const aim = ends[event.key] ?? this.stepped(steps[event.key]);
    if (aim === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.choose(Math.min(this.high, Math.max(this.low, aim)));
  }

  stepped(times) {
    if (times === undefined) return undefined;
    return snapped(this.value + times * this.step, this.step, this.low);
  }
}

export function element(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}
