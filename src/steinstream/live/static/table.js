// The checks of the run, and the table of mean and standard deviation. Texts are set as text, never as markup.

import { label } from "./axes.js";

const at = (id) => document.getElementById(id);
const MARKS = { passed: "✓", warning: "!", open: "…" };
const WORDS = { passed: "passed", warning: "warning", open: "open" };

function element(tag, text, properties = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  return Object.assign(made, properties);
}

export function showChecks(checks) {
  at("checks-section").hidden = !checks.length;
  at("checks").replaceChildren(...checks.map(({ name, state, text }) => {
    const item = document.createElement("li"), mark = element("span", MARKS[state], { className: "mark" });
    item.dataset.state = state;
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", WORDS[state]);
    item.append(mark, state === "warning" ? text : text ? `${name}: ${text}` : name);
    return item;
  }));
}

// Formats a value with the digits that matter for a standard deviation of `sd`.
function rounded(value, sd) {
  if (value === null) return "–";
  return label(value, sd ? 10 ** (Math.floor(Math.log10(sd)) - 2) : Math.abs(value) / 1000);
}

const signed = (value) => {
  const size = Math.abs(value).toFixed(2);
  return (Number(size) === 0 ? "" : value > 0 ? "+" : "−") + size;
};
const quotient = (one, other) => (one === null || !other ? null : one / other);

export function showMoments({ columns, kept, stream, burn_in: burnIn }, name, dim, held) {
  const body = at("moments").tBodies[0];
  at("moments-section").hidden = !columns.length;
  while (body.rows.length > columns.length) body.deleteRow(-1);
  columns.forEach((column, i) => {
    const [mean, sd, streamMean, streamSd] = [kept[0][i], kept[1][i], stream[0][i], stream[1][i]];
    const unit = streamSd || sd, ratio = quotient(sd, streamSd);
    const difference = mean === null || streamMean === null ? null : quotient(mean - streamMean, streamSd);
    const texts = [
      name(column), rounded(mean, unit), rounded(streamMean, unit), rounded(sd, unit), rounded(streamSd, unit),
      difference === null ? "–" : signed(difference), ratio === null ? "–" : ratio.toFixed(2),
    ];
    const row = body.rows[i] || body.insertRow();
    while (row.cells.length < texts.length) {
      row.append(element(row.cells.length ? "td" : "th", "", row.cells.length ? {} : { scope: "row" }));
    }
    texts.forEach((text, k) => { if (row.cells[k].textContent !== text) row.cells[k].textContent = text; });
    row.cells[0].title = texts[0];
  });
  const parts = [held ? "Stream: all draws so far, from an evenly spaced subsample of at most 4096." : "Stream: not stored for this run."];
  if (burnIn) parts.push(`${burnIn} ${burnIn === 1 ? "draw is" : "draws are"} left out as burn-in.`);
  if (columns.length < dim) parts.push(`${columns.length} of ${dim} parameters are shown: the first ones and those on the axes.`);
  const note = parts.join(" ");
  if (at("moments-note").textContent !== note) at("moments-note").textContent = note;
}
