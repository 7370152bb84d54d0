// The last minute: success probability and Q over a band of who moved the robot.

const SECONDS = 60;
const COLOURS = { policy: "#56b4e9", human: "#e69f00", paused: "#a9a3c9", nobody: "#3a4352" };

export class Plot {
  constructor(canvas) {
    this.canvas = canvas;
    this.rows = []; // [time, who, probability, q]
  }

  add(time, who, probability, q) {
    const last = this.rows[this.rows.length - 1];
    if (last && time - last[0] < 0.1) return;
    this.rows.push([time, who, probability, q]);
    while (this.rows.length && time - this.rows[0][0] > SECONDS) this.rows.shift();
  }

  replace(rows) {
    this.rows = rows;
  }

  draw(now) {
    const { g, width, height } = sized(this.canvas);
    const x = (time) => width - 4 - ((now - time) / SECONDS) * (width - 8);
    const band = 9;
    const bottom = height - band - 4;
    g.font = "10px system-ui, sans-serif";
    g.strokeStyle = "#222b37";
    g.fillStyle = "#5d6878";
    for (let back = 0; back <= SECONDS; back += 10) {
      g.beginPath();
      g.moveTo(x(now - back), 0);
      g.lineTo(x(now - back), bottom);
      g.stroke();
      if (back > 0 && back < SECONDS) g.fillText(`-${back} s`, x(now - back) + 3, 10);
    }
    for (let i = 0; i < this.rows.length; i++) {
      const [time, who] = this.rows[i];
      const next = i + 1 < this.rows.length ? this.rows[i + 1][0] : now;
      g.fillStyle = COLOURS[who] || COLOURS.nobody;
      const left = Math.floor(x(time));
      g.fillRect(left, height - band, Math.max(1, Math.ceil(x(next)) - left), band);
    }
    const qs = this.rows.map((row) => row[3]).filter((one) => one !== null);
    const low = Math.min(...qs), high = Math.max(...qs);
    const span = Math.max(1e-6, high - low);
    line(g, this.rows, 3, "#f0e442", x, (q) => bottom - 3 - ((q - low) / span) * (bottom - 6));
    line(g, this.rows, 2, "#2bbd92", x, (p) => bottom - 3 - p * (bottom - 6));
  }
}

/** A canvas at the screen's resolution, cleared. */
export function sized(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  return { g, width, height };
}

export function line(g, rows, index, colour, x, y) {
  g.strokeStyle = colour;
  g.lineWidth = 1.6;
  g.beginPath();
  let pen = false;
  for (const row of rows) {
    if (row[index] === null || row[index] === undefined) {
      pen = false;
      continue;
    }
    if (pen) g.lineTo(x(row[0]), y(row[index]));
    else g.moveTo(x(row[0]), y(row[index]));
    pen = true;
  }
  g.stroke();
  g.lineWidth = 1;
}
