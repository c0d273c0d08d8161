// Canvases at the resolution of the screen, axis ticks and labels, and the colours of the page.

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const dark = matchMedia("(prefers-color-scheme: dark)");

// Returns a function that requests `draw(context, width, height, scale, time)`. It runs at most once per frame, and also
// when the size or the colours change.
export function surface(canvas, draw) {
  let requested = false;
  const context = canvas.getContext("2d");
  const request = () => {
    if (requested) return;
    requested = true;
    requestAnimationFrame((time) => {
      requested = false;
      const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
      if (!width || !height) return;
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
      }
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width, height);
      draw(context, width, height, scale, time);
    });
  };
  new ResizeObserver(request).observe(canvas);
  dark.addEventListener("change", request);
  return request;
}

// Calls `callback` when the colours change.
export const onThemeChange = (callback) => dark.addEventListener("change", callback);

// Formats a number for an axis, with enough digits to distinguish ticks that are `step` apart.
export function label(value, step) {
  const size = Math.max(Math.abs(value), Math.abs(step));
  if (value === 0) return "0";
  if (size >= 1e5 || size < 1e-3) {
    const digits = step ? Math.max(0, Math.floor(Math.log10(Math.abs(value))) - Math.floor(Math.log10(step) + 1e-9)) : 0;
    return tidy(value.toExponential(Math.min(digits, 8)));
  }
  const decimals = step ? Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) : 0;
  return tidy(value.toFixed(Math.min(decimals, 12)));
}

const tidy = (text) => grouped(text.replace(/^-(?=[0.]*$)/, "").replace("e+", "e").replace(/-/g, "−"));

// Groups the digits of numbers from 10 000 on.
export const grouped = (text) => text.replace(/^(−?)(\d{5,})/, (_, sign, whole) => sign + whole.replace(/\B(?=(\d{3})+$)/g, "\u202f"));

// Returns about `wanted` round numbers from low to high.
export function linearTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(wanted, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((each) => each >= rough * 0.999) || rough;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 50; i++) ticks.push(i * step);
  return { ticks, step };
}

// Returns powers of ten: fewer for a wide range, and also their multiples for a narrow one.
export function logTicks(low, high, wanted) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const decades = Math.log10(high / low), every = Math.max(1, Math.ceil(decades / wanted));
  const within = decades < 0.7 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9] : decades < wanted / 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let e = first; e <= last; e++) {
    if (e % every) continue;
    for (const m of within) {
      const tick = m * 10 ** e;
      if (tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push(tick);
    }
  }
  return ticks;
}

export function logLabel(value) {
  if (value >= 1e-3 && value < 1e5) return grouped(String(Number(value.toPrecision(2))));
  const [digits, power] = Number(value.toPrecision(2)).toExponential().split("e");
  const raised = [...String(Number(power))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
  return `${digits === "1" ? "" : `${digits}·`}10${raised}`;
}
