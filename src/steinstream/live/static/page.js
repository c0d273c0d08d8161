// Receives the state of the run and shows it. Names come from files, so they are set as text, never as markup.

import { grouped } from "./axes.js";
import { curve } from "./curve.js";
import { scatter } from "./scatter.js";
import { showChecks, showMoments } from "./table.js";

const at = (id) => document.getElementById(id);
const ARRIVAL = -1;
const TIMEOUT = 6000;  // milliseconds without a message, after which the connection is considered lost

let candidates = 1, source = null, axes = null, received = 0, last = null, ended = false, about = null, held = 0;
const unit = () => (candidates > 1 ? `steps, one per ${candidates} draws` : "draws");
const curves = { measure: curve(at("ksd-curve"), unit), size: curve(at("kept-curve"), unit) };
const draws = scatter(at("scatter"));

// -- formatting

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
  show("status", text);
  document.body.classList.toggle("stale", name === "lost");
}

// -- messages of the run

function decoded(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Kind(bytes.buffer);
}

function receive(event) {
  const message = JSON.parse(event.data);
  received = performance.now();
  show("title", message.title || "steinstream");
  if (message.draws === undefined) {
    const name = message.failed ? "lost" : message.ended ? "ended" : message.waiting ? "waiting" : "running";
    state(name, { lost: "the dashboard has stopped; the run continues", waiting: "waiting for draws" }[name] || name);
  } else {
    last = message;
    if (message.about) begin(message.about);
    if (message.curve) {
      curves.measure.setHistory(message.curve, measure(message), message.scores ? message.curve.changes : []);
      curves.size.setHistory(message.curve, "size");
      at("note").hidden = !message.scores || !message.curve.changes.length;
    }
    showMeasures(message);
    curves.size.setCurrent(message.steps, message.kept);
    if (message.all !== undefined) draws.all(decoded(message.all, Float32Array), message.origin);
    else draws.change(decoded(message.gone, Uint32Array), decoded(message.new, Float32Array));
    if (message.stream !== undefined) {
      const stream = decoded(message.stream, Float32Array);
      held = stream.length / 2;
      draws.stream(stream);
      at("stream-legend").hidden = !held;
      at("scatter").dataset.stream = held;
    }
    if (message.checks) showChecks(message.checks);
    showMoments(message.table, name, about.dim, held);
    show("kept", count(message.kept), message.kept);
    show("draws", count(message.draws), message.draws);
    show("draws-label", message.pass > 1 ? `draws, pass ${message.pass}` : "draws");
    show("rate", rate(message.rate), message.rate);
    show("rate-label", message.ended ? "mean draws per second" : "draws per second");
    show("elapsed", clock(message.elapsed));
    at("scatter").dataset.count = draws.count;
    document.title = `${about.stream_term && !message.scores ? `MMD ${precise(message.mmd)}` : `KSD ${ksd(message)}`} · ${message.title || "steinstream"}`;
    if (message.failed) state("lost", "the dashboard has stopped; the run continues");
    else if (message.ended) state("ended", "ended");
    else if (!message.settled) state("waiting", "warming up");
    else if (message.rate === 0) state("waiting", "waiting for draws");
    else state("running", "running");
  }
  if (message.ended) {
    ended = true;
    source.close();
  }
}

const ksd = (message) => (message.scores ? precise(message.ksd) : "no scores");

// The curve is that of MMD if there are no scores.
const measure = (message) => (message.scores || !about.stream_term ? "ksd" : "mmd");

// Shows KSD, and MMD if there is a stream term.
function showMeasures(message) {
  show("ksd", ksd(message), message.ksd);
  show("mmd", precise(message.mmd), message.mmd);
  at("mmd-number").hidden = !about.stream_term;
  show("measure", measure(message) === "mmd" ? "MMD to the stream" : "KSD");
  const missing = !message.scores && !about.stream_term;
  curves.measure.setCurrent(message.steps, message[measure(message)], missing ? "no scores" : "waiting for draws");
}

// -- choice of the two coordinates

function begin(now) {
  candidates = now.candidates;
  axes = [now.x, now.y];
  if (JSON.stringify(now) !== JSON.stringify(about)) {
    about = now;
    at("choose-x").replaceChildren(chooser(0, "x axis"));
    at("choose-y").replaceChildren(chooser(1, "y axis"));
  }
  draws.name(name(axes[0]), name(axes[1]));
}

const name = (axis) => (axis === ARRIVAL ? "step" : about.names ? about.names[axis] : `x${axis}`);

// Long names often differ at their end only: in an index.
const shortened = (text) => (text.length <= 24 ? text : `${text.slice(0, 11)}…${text.slice(-12)}`);

function chooser(which, what) {
  const listed = about.dim <= 500, box = document.createElement(listed ? "select" : "input");
  box.setAttribute("aria-label", `coordinate on the ${what}`);
  if (listed) {
    for (let axis = ARRIVAL; axis < about.dim; axis++) {
      const option = document.createElement("option");
      option.value = axis;
      option.textContent = shortened(name(axis));
      option.title = name(axis);
      box.append(option);
    }
  } else {
    Object.assign(box, { type: "number", min: ARRIVAL, max: about.dim - 1, step: 1, title: "index of the coordinate; −1: step" });
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
  source.onmessage = receive;
  source.onerror = () => { if (!ended) state("lost", "connection lost, reconnecting"); };
}

setInterval(() => {
  if (ended || !received) return;
  const silent = performance.now() - received;
  if (silent > TIMEOUT) state("lost", `no data for ${Math.round(silent / 1000)} s`);
  else if (last && at("state").dataset.state !== "lost") show("elapsed", clock(last.elapsed + silent / 1000));
}, 500);

addEventListener("pagehide", () => source && source.close());
addEventListener("pageshow", (event) => { if (event.persisted && !ended) listen(); });
listen();
