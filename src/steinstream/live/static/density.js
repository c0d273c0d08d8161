// Shades the regions that hold 50%, 80% and 95% of some points: a histogram, smoothed with a Gaussian kernel.

import { colour } from "./axes.js";

const CELL = 3;  // pixels
const LEVELS = [[0.95, 0.12], [0.8, 0.22], [0.5, 0.36]];  // share of the points, opacity

// Returns [low, high] of the central 98 % of every second value, from `first` on; null if there are none.
export function range(points, first) {
  const values = [];
  for (let i = first; i < points.length; i += 2) if (points[i] - points[i] === 0) values.push(points[i]);
  if (!values.length) return null;
  values.sort((a, b) => a - b);
  const at = (share) => values[Math.round(share * (values.length - 1))];
  return [at(0.01), at(0.99)];
}

export function density(context, points, box, x, y) {
  const columns = Math.ceil((box.right - box.left) / CELL), rows = Math.ceil((box.bottom - box.top) / CELL);
  if (columns < 2 || rows < 2 || points.length < 20) return;
  let grid = new Float32Array(columns * rows), inside = 0;
  const across = [], up = [];
  for (let i = 0; i < points.length; i += 2) {
    const column = Math.floor((x(points[i]) - box.left) / CELL), row = Math.floor((y(points[i + 1]) - box.top) / CELL);
    if (!(column >= 0 && column < columns && row >= 0 && row < rows)) continue;
    grid[row * columns + column]++;
    across.push(column);
    up.push(row);
    inside++;
  }
  if (!inside) return;
  grid = blurred(grid, columns, rows, 1, columns, bandwidth(across));
  grid = blurred(grid, rows, columns, columns, 1, bandwidth(up));
  const sorted = Float32Array.from(grid).sort().reverse(), opacity = new Float32Array(grid.length);
  const total = sorted.reduce((sum, value) => sum + value, 0);
  for (const [share, alpha] of LEVELS) {
    let sum = 0, i = 0;
    while (i < sorted.length - 1 && sum + sorted[i] < share * total) sum += sorted[i++];
    for (let k = 0; k < grid.length; k++) if (grid[k] >= sorted[i] && grid[k] > 0) opacity[k] = alpha;
  }
  paint(context, opacity, columns, rows, box);
}

// Scott's rule for two dimensions, in cells.
function bandwidth(values) {
  const sorted = values.slice().sort((a, b) => a - b), at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
  const spread = Math.max((at(0.84) - at(0.16)) / 2, 1);
  return Math.max(1, Math.min(14, spread * values.length ** (-1 / 6)));
}

// Smooths `lines` lines of `length` cells; consecutive cells are `step` apart, and lines `skip`.
function blurred(grid, length, lines, step, skip, width) {
  const reach = Math.ceil(3 * width), kernel = [], result = new Float32Array(grid.length);
  for (let k = -reach; k <= reach; k++) kernel.push(Math.exp((-k * k) / (2 * width * width)));
  for (let line = 0; line < lines; line++) {
    for (let i = 0; i < length; i++) {
      const value = grid[line * skip + i * step];
      if (!value) continue;
      for (let k = Math.max(-reach, -i); k <= Math.min(reach, length - 1 - i); k++) {
        result[line * skip + (i + k) * step] += value * kernel[k + reach];
      }
    }
  }
  return result;
}

function paint(context, opacity, columns, rows, box) {
  const image = new ImageData(columns, rows), number = parseInt(colour("stream").slice(1), 16);
  for (let k = 0; k < opacity.length; k++) {
    image.data.set([number >> 16, (number >> 8) & 255, number & 255, 255 * opacity[k]], 4 * k);
  }
  const small = document.createElement("canvas");
  [small.width, small.height] = [columns, rows];
  small.getContext("2d").putImageData(image, 0, 0);
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  context.clip();
  context.imageSmoothingEnabled = true;
  context.drawImage(small, box.left, box.top, columns * CELL, rows * CELL);
  context.restore();
}
