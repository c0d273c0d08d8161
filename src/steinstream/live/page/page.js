// Listens to the run and shows what it hears. Names come from files: they are set as text, never as markup.

import { grouped } from "./axes.js";
import { curve } from "./curve.js";
import { scatter } from "./scatter.js";

const at = (id) => document.getElementById(id);
const ARRIVAL = -1;
const SILENCE = 6000;  // milliseconds without a word, after which the connection counts as lost

let candidates = 1, source = null, axes = null, heard = 0, last = null, ended = false, about = null;
const unit = () => (candidates > 1 ? `steps, each the best of ${candidates} draws` : "draws");
const curves = { ksd: curve(at("ksd-curve"), "ksd", unit), size: curve(at("kept-curve"), "size", unit) };
const draws = scatter(at("scatter"));

// -- numbers for people

const count = (number) => grouped(String(Math.round(number)));
const precise = (number) => (number === null ? "–" : number.toPrecision(4).replace("e+", "e").replace(/-/g, "−"));
const rate = (number) => (number === null || number === undefined ? "–" : number >= 10 || number === 0 ? count(Number(number.toPrecision(3))) : number.toPrecision(2));

function clock(seconds) {
  const whole = Math.floor(seconds), two = (n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

function show(id, text, value) {
  const place = at(id);
  if (place.textContent !== text) place.textContent = text;
  if (value !== undefined) place.dataset.value = value;
}

function state(name, text) {
  at("state").dataset.state = name;
  show("said", text);
  document.body.classList.toggle("stale", name === "lost");
}

// -- what the run says

function decoded(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Kind(bytes.buffer);
}

function hear(event) {
  const said = JSON.parse(event.data);
  heard = performance.now();
  show("title", said.title || "steinstream");
  if (said.draws === undefined) {
    const name = said.ended ? "ended" : said.waiting ? "waiting" : "running";
    state(name, name === "waiting" ? "waiting for draws" : name);
  } else {
    last = said;
    if (said.about) begin(said.about);
    if (said.curve) {
      curves.ksd.past(said.curve);
      curves.size.past(said.curve);
      at("note").hidden = !said.curve.changes.length;
    }
    curves.ksd.now(said.steps, said.ksd);
    curves.size.now(said.steps, said.kept);
    if (said.all !== undefined) draws.all(decoded(said.all, Float32Array), said.origin);
    else draws.change(decoded(said.gone, Uint32Array), decoded(said.new, Float32Array));
    show("ksd", precise(said.ksd), said.ksd);
    show("kept", count(said.kept), said.kept);
    show("draws", count(said.draws), said.draws);
    show("draws-label", said.pass > 1 ? `draws, pass ${said.pass}` : "draws");
    show("rate", rate(said.rate), said.rate);
    show("rate-label", said.ended ? "draws per second, in the mean" : "draws per second");
    show("elapsed", clock(said.elapsed));
    at("scatter").dataset.count = draws.count;
    document.title = `KSD ${precise(said.ksd)} · ${said.title || "steinstream"}`;
    if (said.ended) state("ended", "ended");
    else if (!said.settled) state("waiting", "warming up");
    else if (said.rate === 0) state("waiting", "waiting for draws");
    else state("running", "running");
  }
  if (said.ended) {
    ended = true;
    source.close();
  }
}

// -- which two coordinates

function begin(now) {
  candidates = now.candidates;
  axes = [now.x, now.y];
  if (JSON.stringify(now) !== JSON.stringify(about)) {
    about = now;
    at("choose-x").replaceChildren(chooser(0, "across"));
    at("choose-y").replaceChildren(chooser(1, "up"));
  }
  draws.name(name(axes[0]), name(axes[1]));
}

const name = (axis) => (axis === ARRIVAL ? "draw" : about.names ? about.names[axis] : `x${axis}`);

function chooser(which, what) {
  const listed = about.dim <= 500, box = document.createElement(listed ? "select" : "input");
  box.setAttribute("aria-label", `coordinate ${what}`);
  if (listed) {
    for (let axis = ARRIVAL; axis < about.dim; axis++) {
      const option = document.createElement("option");
      option.value = axis;
      option.textContent = axis === ARRIVAL ? "draw (when it came)" : name(axis);
      box.append(option);
    }
  } else {
    Object.assign(box, { type: "number", min: ARRIVAL, max: about.dim - 1, step: 1, title: "number of the coordinate; −1: when the draw came" });
  }
  box.value = axes[which];
  box.disabled = ended;
  box.addEventListener("change", () => {
    const wanted = Math.max(ARRIVAL, Math.min(about.dim - 1, Math.round(Number(box.value) || 0)));
    box.value = wanted;
    axes[which] = wanted;
    if (!ended) listen();
  });
  return box;
}

// -- the connection

function listen() {
  if (source) source.close();
  source = new EventSource(axes ? `events?x=${axes[0]}&y=${axes[1]}` : "events");
  source.onmessage = hear;
  source.onerror = () => { if (!ended) state("lost", "connection lost, trying again"); };
}

setInterval(() => {
  if (ended || !heard) return;
  const silent = performance.now() - heard;
  if (silent > SILENCE) state("lost", `no word from the run for ${Math.round(silent / 1000)} s`);
  else if (last && at("state").dataset.state !== "lost") show("elapsed", clock(last.elapsed + silent / 1000));
}, 500);

addEventListener("pagehide", () => source && source.close());
addEventListener("pageshow", (event) => { if (event.persisted && !ended) listen(); });
listen();
