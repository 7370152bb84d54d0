// The action of the newest step: what the policy asked for beside what was done, entry by entry.

import { sized } from "./plot.js";

const POLICY = "#56b4e9";
const HUMAN = "#e69f00";
const GREY = "#2b3442";
const COLUMN = 26;
const MOST = 260; // width of all columns together [px]
const AXES = ["x", "y"];

/** Width of a drawing, of its part for x and y, and of a column [px]. */
export function layout(names, height) {
  const flat = AXES.every((name) => names.includes(name)) ? height + 8 : 0;
  const columns = names.length - (flat ? AXES.length : 0);
  const column = Math.min(COLUMN, MOST / Math.max(1, columns));
  return { flat, column, width: flat + column * columns };
}

/** Draw actions in [-1, 1]: x and y as arrows, x away from the person and y to the left; others as columns. */
export function drawAction(canvas, names, asked, done, human) {
  const { g, height } = sized(canvas);
  g.font = "10px system-ui, sans-serif";
  g.textAlign = "center";
  const { flat, column } = layout(names, height);
  if (flat) {
    const at = AXES.map((name) => names.indexOf(name));
    const half = height / 2;
    g.strokeStyle = GREY;
    g.strokeRect(0.5, 0.5, height - 1, height - 1);
    line(g, [half, 4, half, height - 4]);
    line(g, [4, half, height - 4, half]);
    g.fillStyle = "#97a3b4";
    g.fillText("x", half + 9, 11);
    g.fillText("y", 9, half - 5);
    arrow(g, half, asked[at[0]], asked[at[1]], POLICY);
    if (human) arrow(g, half, done[at[0]], done[at[1]], HUMAN);
  }
  let left = flat;
  names.forEach((name, index) => {
    if (flat && AXES.includes(name)) return;
    bar(g, left, column, height, name, asked[index], done[index], human);
    left += column;
  });
}

function line(g, [x0, y0, x1, y1]) {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

function arrow(g, half, x, y, colour) {
  const to = [half - y * (half - 6), half - x * (half - 6)];
  const angle = Math.atan2(to[1] - half, to[0] - half);
  g.strokeStyle = g.fillStyle = colour;
  g.lineWidth = 3;
  line(g, [half, half, ...to]);
  g.lineWidth = 1;
  if (Math.hypot(x, y) < 0.05) return;
  g.beginPath();
  for (const turn of [0, 2.6, -2.6]) g.lineTo(to[0] + 8 * Math.cos(angle + turn), to[1] + 8 * Math.sin(angle + turn));
  g.fill();
}

function bar(g, left, width, height, name, asked, done, human) {
  const low = height - 14;
  const middle = low / 2;
  const at = (value) => middle - value * (middle - 2);
  g.fillStyle = GREY;
  g.fillRect(left + width / 4, 2, width / 2, low - 4);
  g.fillStyle = human ? HUMAN : POLICY;
  g.fillRect(left + width / 4, Math.min(middle, at(done)), width / 2, Math.abs(at(done) - middle));
  g.fillStyle = POLICY;
  g.fillRect(left + 1, at(asked) - 1.5, width - 2, 3);
  g.fillStyle = "#97a3b4";
  if (width > 20) g.fillText(name.slice(0, 4), left + width / 2, height - 3);
}
