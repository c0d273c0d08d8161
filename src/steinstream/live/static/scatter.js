// Plots the kept draws in two coordinates. After each change all draws are rendered pixel by pixel on a separate layer:
// ten thousand take a few milliseconds, ten times less than with canvas shapes. New and dropped draws are shown above it
// for a moment, and differ in shape and size as well as in colour. The density of the stream is behind them.

import { colour, label, linearTicks, onThemeChange, surface } from "./axes.js";
import { density, range as centralRange } from "./density.js";

const MOMENT = 1600;  // milliseconds for which a change is shown
const SHOWN = 300;  // largest number of new or dropped draws shown at once: the latest ones

function rgb(text) {
  const number = parseInt(text.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

export function scatter(canvas) {
  let points = new Float32Array(0), count = 0, origin = [0, 0], range = null;
  let stream = new Float32Array(0), streamRanges = [null, null];
  const marks = [{ fresh: false, list: [] }, { fresh: true, list: [] }];
  const layer = document.createElement("canvas"), dots = document.createElement("canvas");
  let drawn = "";  // state that the layer shows
  let version = 0;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const names = ["", ""];

  const request = surface(canvas, (context, width, height, scale, time) => {
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.font = font;
    if (!range) {
      context.fillStyle = colour("quiet");
      context.textAlign = "center";
      context.fillText("no draws kept yet", width / 2, height / 2);
      return;
    }
    const box = { right: width - 8, top: 6, bottom: height - 44 };
    const up = linearTicks(origin[1] + range[2], origin[1] + range[3], (box.bottom - box.top) / 60);
    box.left = 30 + Math.max(24, ...up.ticks.map((tick) => context.measureText(label(tick, up.step)).width));
    const x = (value) => box.left + ((value - range[0]) / (range[1] - range[0])) * (box.right - box.left);
    const y = (value) => box.bottom - ((value - range[2]) / (range[3] - range[2])) * (box.bottom - box.top);
    const state = [version, width, height, scale].join();
    if (state !== drawn) {
      layer.width = canvas.width;
      layer.height = canvas.height;
      const back = layer.getContext("2d");
      back.setTransform(scale, 0, 0, scale, 0, 0);
      back.font = font;
      density(back, stream, box, x, y);
      axes(back, box, x, y, width, up);
      cloud(back, box, x, y, scale);
      drawn = state;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(layer, 0, 0);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    highlights(context, x, y, time, scale);
  });

  function axes(context, box, x, y, width, up) {
    const across = linearTicks(origin[0] + range[0], origin[0] + range[1], (box.right - box.left) / 85);
    context.lineWidth = 1;
    context.strokeStyle = colour("grid");
    context.beginPath();
    for (const tick of across.ticks) { const at = Math.round(x(tick - origin[0])) + 0.5; context.moveTo(at, box.top); context.lineTo(at, box.bottom); }
    for (const tick of up.ticks) { const at = Math.round(y(tick - origin[1])) + 0.5; context.moveTo(box.left, at); context.lineTo(box.right, at); }
    context.stroke();
    context.strokeStyle = colour("line");
    context.strokeRect(box.left + 0.5, box.top + 0.5, box.right - box.left - 1, box.bottom - box.top - 1);
    context.fillStyle = colour("quiet");
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const tick of up.ticks) context.fillText(label(tick, up.step), box.left - 8, y(tick - origin[1]));
    context.textBaseline = "top";
    context.textAlign = "center";
    let free = -Infinity;
    for (const tick of across.ticks) {
      const words = label(tick, across.step), half = context.measureText(words).width / 2;
      const middle = Math.min(x(tick - origin[0]), width - half);
      if (middle - half < free) continue;
      context.fillText(words, middle, box.bottom + 7);
      free = middle + half + 8;
    }
    context.fillStyle = colour("ink");
    context.fillText(names[0], (box.left + box.right) / 2, box.bottom + 25, box.right - box.left);
    context.save();
    context.translate(2, (box.top + box.bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(names[1], 0, 0, box.bottom - box.top);
    context.restore();
  }

  // Every disc lets a part of what is below it through, and the more discs the less.
  function cloud(context, box, x, y, scale) {
    const radius = scale * Math.max(1.3, Math.min(3.2, 14 / count ** 0.25)) * (box.right - box.left < 400 ? 0.8 : 1);
    const reach = Math.ceil(radius), side = 2 * reach + 1, disc = new Float32Array(side * side);
    const strength = Math.max(0.5, Math.min(0.85, 8 / Math.sqrt(count) + 0.4));
    for (let k = 0; k < disc.length; k++) {
      const away = Math.hypot((k % side) - reach, Math.floor(k / side) - reach);
      disc[k] = 1 - strength * Math.max(0, Math.min(1, radius + 0.5 - away));
    }
    const { width, height } = layer, through = new Float32Array(width * height).fill(1);
    for (let i = 0; i < count; i++) {
      const left = Math.round(x(points[2 * i]) * scale) - reach, top = Math.round(y(points[2 * i + 1]) * scale) - reach;
      if (!(left >= 0 && top >= 0 && left + side <= width && top + side <= height)) continue;
      for (let j = 0, k = 0; j < side; j++) {
        for (let at = (top + j) * width + left, end = at + side; at < end; at++, k++) through[at] *= disc[k];
      }
    }
    const image = new ImageData(width, height), pixels = image.data, [red, green, blue] = rgb(colour("kept"));
    for (let at = 0; at < through.length; at++) {
      if (through[at] === 1) continue;
      pixels[4 * at] = red;
      pixels[4 * at + 1] = green;
      pixels[4 * at + 2] = blue;
      pixels[4 * at + 3] = 255 * (1 - through[at]);
    }
    dots.width = width;
    dots.height = height;
    dots.getContext("2d").putImageData(image, 0, 0);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(dots, 0, 0);
  }

  // Returns the marker: a diamond for new draws, a cross for dropped ones.
  function stamp(fresh, scale) {
    const size = (fresh ? 5.5 : 4.5) * (count > 3000 ? 0.85 : 1), half = size + 2, shape = document.createElement("canvas");
    shape.width = shape.height = Math.ceil(2 * half * scale);
    const pen = shape.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, shape.width / 2, shape.height / 2);
    pen.beginPath();
    if (fresh) {
      pen.moveTo(0, -size); pen.lineTo(size, 0); pen.lineTo(0, size); pen.lineTo(-size, 0);
      pen.closePath();
      pen.fillStyle = colour("new");
      pen.fill();
    } else {
      pen.moveTo(-size, -size); pen.lineTo(size, size); pen.moveTo(size, -size); pen.lineTo(-size, size);
      pen.lineCap = "round";
    }
    pen.lineWidth = fresh ? 1.1 : 2;
    pen.strokeStyle = colour(fresh ? "new-edge" : "gone");
    pen.stroke();
    return shape;
  }

  function highlights(context, x, y, time, scale) {
    for (const kind of marks) {
      kind.list = kind.list.filter((mark) => time - mark.since < MOMENT);
      if (!kind.list.length) continue;
      const shape = stamp(kind.fresh, scale), half = shape.width / scale / 2;
      for (const { since, across, up } of kind.list) {
        const left = Math.max(0, Math.min(1, 1 - (time - since) / MOMENT)), to = x(across), over = y(up);
        context.globalAlpha = calm.matches ? 1 : Math.min(1, 2 * left);
        if (to - to === 0 && over - over === 0) context.drawImage(shape, to - half, over - half, 2 * half, 2 * half);
      }
      request();
    }
    context.globalAlpha = 1;
  }

  function mark(kind, at) {
    const since = performance.now();
    for (let i = Math.max(0, at.length - 2 * SHOWN); i < at.length; i += 2) kind.list.push({ since, across: at[i], up: at[i + 1] });
    kind.list = kind.list.slice(-SHOWN);
  }

  // Changes the axis limits only if a draw is outside, or if all draws are in a small part. The limits contain all kept
  // draws and the central 98 % of the stream.
  function fit() {
    const seen = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < 2 * count; i++) {
      const value = points[i], k = i % 2 ? 2 : 0;
      if (value - value !== 0) continue;
      if (value < seen[k]) seen[k] = value;
      if (value > seen[k + 1]) seen[k + 1] = value;
    }
    streamRanges.forEach((central, j) => {
      if (!central) return;
      seen[2 * j] = Math.min(seen[2 * j], central[0]);
      seen[2 * j + 1] = Math.max(seen[2 * j + 1], central[1]);
    });
    const next = range ? range.slice() : [0, 0, 0, 0];
    for (const k of [0, 2]) {
      const [low, high] = [seen[k], seen[k + 1]], span = high - low || Math.abs(high) * 0.1 || 1;
      if (!(low <= high)) { next[k] = -1; next[k + 1] = 1; continue; }
      const outside = !range || low < range[k] || high > range[k + 1];
      if (outside || high - low < 0.6 * (range[k + 1] - range[k])) { next[k] = low - 0.08 * span; next[k + 1] = high + 0.08 * span; }
    }
    range = next;
  }

  function changed() {
    version++;
    if (count || stream.length) fit();
    request();
  }

  onThemeChange(() => { version++; request(); });

  return {
    all(pairs, where) {
      [points, count, origin, range] = [pairs, pairs.length / 2, where, null];
      [stream, streamRanges] = [new Float32Array(0), [null, null]];
      for (const kind of marks) kind.list = [];
      changed();
    },
    change(gone, fresh) {
      if (!gone.length && !fresh.length) return;
      const lost = new Float32Array(2 * gone.length);
      let kept = gone.length ? gone[0] : count, next = 0;
      for (let i = kept; i < count; i++) {
        if (next < gone.length && gone[next] === i) {
          lost[2 * next] = points[2 * i]; lost[2 * next + 1] = points[2 * i + 1]; next++;
        } else { points[2 * kept] = points[2 * i]; points[2 * kept + 1] = points[2 * i + 1]; kept++; }
      }
      if (2 * kept + fresh.length > points.length) {
        const wider = new Float32Array(Math.ceil(1.5 * (2 * kept + fresh.length)) + 64);
        wider.set(points.subarray(0, 2 * kept));
        points = wider;
      }
      points.set(fresh, 2 * kept);
      count = kept + fresh.length / 2;
      mark(marks[0], lost);
      mark(marks[1], fresh);
      changed();
    },
    stream(pairs) {
      [stream, streamRanges] = [pairs, [centralRange(pairs, 0), centralRange(pairs, 1)]];
      changed();
    },
    name(across, up) { [names[0], names[1]] = [across, up]; version++; request(); },
    get count() { return count; },
  };
}
