// Plots a value against the number of draws, both on logarithmic axes, with a point at the current state.

import { colour, logLabel, logTicks, surface } from "./axes.js";

export function curve(canvas, unit) {
  let steps = [], values = [], changes = [], now = null, reason = "waiting for draws";
  const request = surface(canvas, (context, width, height) => {
    const points = [];
    for (let i = 0; i < steps.length; i++) if (steps[i] > 0 && values[i] > 0) points.push([steps[i], values[i]]);
    if (now && now[0] > 0 && now[1] > 0) points.push(now);
    const text = colour("quiet");
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.fillStyle = text;
    if (!points.length) {
      context.textAlign = "center";
      context.fillText(reason, width / 2, height / 2);
      return;
    }
    const box = { left: 52, right: width - 12, top: 6, bottom: height - 36 };
    const right = Math.max(points[points.length - 1][0], 10);
    let low = Infinity, high = 0;
    for (const [, value] of points) { low = Math.min(low, value); high = Math.max(high, value); }
    const middle = Math.sqrt(low * high);  // show at least a factor of three
    low = Math.min(low / 1.15, middle / 1.75);
    high = Math.max(high * 1.15, middle * 1.75);
    const x = (step) => box.left + (Math.log(step) / Math.log(right)) * (box.right - box.left);
    const y = (value) => box.bottom - (Math.log(value / low) / Math.log(high / low)) * (box.bottom - box.top);

    context.lineWidth = 1;
    context.strokeStyle = colour("grid");
    context.beginPath();
    const across = logTicks(1, right, Math.max(2, (box.right - box.left) / 90)), up = logTicks(low, high, (box.bottom - box.top) / 50);
    for (const tick of up) { context.moveTo(box.left, Math.round(y(tick)) + 0.5); context.lineTo(box.right, Math.round(y(tick)) + 0.5); }
    context.stroke();
    context.strokeStyle = colour("line");
    context.beginPath();
    context.moveTo(box.left, box.bottom + 0.5);
    context.lineTo(box.right, box.bottom + 0.5);
    for (const tick of across) { context.moveTo(Math.round(x(tick)) + 0.5, box.bottom); context.lineTo(Math.round(x(tick)) + 0.5, box.bottom + 4); }
    context.stroke();
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of up) context.fillText(logLabel(tick), box.left - 8, y(tick));
    context.textAlign = "center";
    context.textBaseline = "top";
    let free = -Infinity;
    for (const tick of across) {
      const words = logLabel(tick), half = context.measureText(words).width / 2;
      const at = Math.min(x(tick), width - half);
      if (at - half > free) { context.fillText(words, at, box.bottom + 6); free = at + half + 8; }
    }
    context.textAlign = "right";
    context.fillText(unit(), box.right, box.bottom + 21);

    if (changes.length) {
      context.strokeStyle = text;
      context.globalAlpha = 0.7;
      context.setLineDash([1, 4]);
      context.beginPath();
      for (const step of changes) { context.moveTo(Math.round(x(step)) + 0.5, box.top); context.lineTo(Math.round(x(step)) + 0.5, box.bottom); }
      context.stroke();
      context.setLineDash([]);
      context.globalAlpha = 1;
    }
    context.strokeStyle = context.fillStyle = colour("curve");
    context.lineWidth = 1.8;
    context.lineJoin = "round";
    context.beginPath();
    points.forEach(([step, value], i) => (i ? context.lineTo(x(step), y(value)) : context.moveTo(x(step), y(value))));
    context.stroke();
    const [step, value] = points[points.length - 1];
    context.beginPath();
    context.arc(x(step), y(value), 3.5, 0, 2 * Math.PI);
    context.fill();
  });

  return {
    // Shows the column `name` of the history, with dotted lines at the steps `at`.
    setHistory(history, name, at = []) {
      [steps, values, changes] = [history.step, history[name], at];
      request();
    },
    // Sets the current value, and the text that is shown as long as there is none.
    setCurrent(step, value, whyEmpty = "waiting for draws") {
      now = [step, value];
      reason = whyEmpty;
      // If the thinner records no history, store the values that the page has received.
      if (!steps.length || steps.own) {
        if (!steps.own) { steps = []; values = []; steps.own = true; }
        if (value > 0 && !(step < 1.02 * steps[steps.length - 1])) { steps.push(step); values.push(value); }
      }
      request();
    },
    request,
  };
}
