// The review page: recorded episodes, their pictures and values, and later labels.

import { command, connectionName, isLost, link, newId, on, send, serverNow, start, stop } from "./link.js";
import { line, sized } from "./plot.js";

const $ = (testid) => document.querySelector(`[data-testid="${testid}"]`);
const COLOURS = { policy: "#56b4e9", human: "#e69f00", paused: "#a9a3c9", nobody: "#3a4352" };
const WORDS = { policy: "POLICY", human: "HUMAN", paused: "PAUSED", nobody: "NOBODY" };

let chosen = null; // timeline of an episode
let at = 0; // index of the marked row
let sent = new Map(); // what was sent, by content: sent again it keeps its id
let state = null;

function say(text) {
  $("message").textContent = text;
  $("message").hidden = !text;
  if (text) setTimeout(() => { $("message").hidden = true; }, 6000);
}

async function load() {
  const reply = await fetch("/api/episodes");
  if (!reply.ok) {
    say(await reply.text());
    return;
  }
  const { episodes, reader } = await reply.json();
  if (!reader) say("This console was started without a run folder: it has recorded no episodes.");
  $("episodes").replaceChildren(...episodes.map((one) => {
    const item = document.createElement("li");
    item.dataset.testid = `episode-${one.name}`;
    item.setAttribute("aria-selected", String(Boolean(chosen && chosen.name === one.name)));
    const image = document.createElement("img");
    image.alt = "";
    if (one.first !== null) image.src = picture(one.name, one.first);
    const words = document.createElement("span");
    words.textContent = `#${one.episode} · ${one.seconds} s${one.human ? ` · human ${Math.round(100 * one.human)} %` : ""}`;
    item.append(image, words);
    if (one.label) item.append(tag(one.label.kind));
    item.addEventListener("click", () => choose(one.name));
    return item;
  }));
}

function tag(kind) {
  const found = document.createElement("span");
  found.className = "tag";
  found.dataset.kind = kind;
  found.textContent = kind;
  return found;
}
const picture = (name, index) => `/api/episodes/${encodeURIComponent(name)}/${index}.jpg`;

async function choose(name) {
  const reply = await fetch(`/api/episodes/${encodeURIComponent(name)}`);
  if (!reply.ok) {
    say(await reply.text());
    return;
  }
  chosen = await reply.json();
  at = Math.max(0, chosen.rows.length - 1);
  $("title").textContent = `Episode ${chosen.episode}`;
  $("film").replaceChildren(...chosen.rows.filter((row) => row.picture).map((row) => {
    const button = document.createElement("button");
    button.dataset.who = row.who;
    button.dataset.index = row.index;
    const image = document.createElement("img");
    image.src = picture(name, row.index);
    image.alt = `at ${row.t} s`;
    const words = document.createElement("span");
    words.textContent = `${Number(row.t || 0).toFixed(1)} s${typeof row.success_probability === "number" ? ` · ${row.success_probability.toFixed(2)}` : ""}`;
    button.append(image, words);
    button.addEventListener("click", () => mark(row.index));
    return button;
  }));
  $("history").replaceChildren(...[...chosen.labels].reverse().map((one) => {
    const item = document.createElement("li");
    const words = document.createElement("span");
    words.textContent = [new Date(1000 * one.t).toLocaleString(), one.operator, one.reason].filter(Boolean).join(" · ");
    item.append(tag(one.kind), words);
    return item;
  }));
  mark(at);
  load();
}

function mark(index) {
  at = Math.max(0, Math.min(chosen.rows.length - 1, index));
  for (const button of $("film").children) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.index) === at));
  }
  const row = chosen.rows[at];
  $("at").textContent = row ? `marked: step ${row.step ?? at}, ${Number(row.t || 0).toFixed(1)} s, ${row.who}` : "";
  draw();
}

function draw() {
  if (!chosen) return;
  const { g, width, height } = sized($("timeline"));
  const rows = chosen.rows.map((row, index) => [index, row.who, row.success_probability ?? null, row.q ?? null]);
  const x = (index) => 6 + (index / Math.max(1, rows.length - 1)) * (width - 12);
  const bottom = height - 14;
  rows.forEach(([index, who]) => {
    g.fillStyle = COLOURS[who] || COLOURS.nobody;
    const left = Math.floor(x(index));
    g.fillRect(left, height - 10, Math.max(1, Math.ceil(x(index + 1)) - left), 10);
  });
  const qs = rows.map((row) => row[3]).filter((one) => one !== null);
  const low = Math.min(...qs), span = Math.max(1e-6, Math.max(...qs) - low);
  line(g, rows, 3, "#f0e442", x, (q) => bottom - 4 - ((q - low) / span) * (bottom - 8));
  line(g, rows, 2, "#2bbd92", x, (p) => bottom - 4 - p * (bottom - 8));
  g.fillStyle = "#fff";
  g.fillRect(x(at) - 1, 0, 2, height);
}
$("timeline").addEventListener("pointerdown", (event) => {
  if (!chosen) return;
  const box = event.target.getBoundingClientRect();
  mark(Math.round(((event.clientX - box.left - 6) / (box.width - 12)) * (chosen.rows.length - 1)));
});

async function relabel(kind) {
  if (!chosen) return;
  const row = chosen.rows[at] || {};
  const whole = kind === "discard" || kind === "undiscard";
  // A row shows what its last step led to: steps are counted before they are told.
  const shown = row.step ?? at;
  const from = whole ? 0 : kind === "segment" ? shown : Math.max(0, shown - 1);
  const correction = {
    session: chosen.session, episode: chosen.episode, kind, from,
    value: kind === "segment" ? $("segment-kind").value : $("reason").value.trim() || null,
  };
  const content = JSON.stringify(correction);
  if (!sent.has(content)) sent.set(content, newId());
  if (state.operator.holder !== link.number) {
    const lock = await command("acquire");
    if (!lock.ok) {
      say(lock.why);
      return;
    }
  }
  const reply = await command("relabel", { correction: { id: sent.get(content), ...correction } });
  if (!reply.ok) {
    say(reply.why);
    return;
  }
  $("reason").value = "";
  sent.delete(content); // what is said after this one is another correction
  say(`${kind} was taken`);
  choose(chosen.name);
}
for (const button of document.querySelectorAll("[data-kind]")) {
  button.addEventListener("click", () => relabel(button.dataset.kind));
}
$("refresh").addEventListener("click", load);

async function stopNow() {
  const reply = await stop();
  if (!reply || !reply.ok) say("STOP was not confirmed. Use the emergency stop of the robot.");
}
$("stop").addEventListener("pointerdown", stopNow);
$("stop").addEventListener("click", (event) => { if (event.detail === 0) stopNow(); });
const writesWords = (target) => target === $("reason");
addEventListener("keydown", (event) => {
  if (event.code !== "Escape" && (event.code !== "Space" || writesWords(event.target))) return;
  event.preventDefault();
  if (!event.repeat) stopNow();
});
addEventListener("keyup", (event) => {
  if (event.code === "Space" && !writesWords(event.target)) event.preventDefault();
});

on("state", (message) => {
  state = message;
  $("robot-name").textContent = state.robot.name;
  $("safety").textContent = state.robot.safety;
  const banner = $("authority");
  banner.dataset.who = state.robot.authority;
  banner.dataset.stopped = String(["estop", "safe_stop"].includes(state.robot.safety));
  $("authority-who").textContent = WORDS[state.robot.authority];
  $("authority-why").textContent = state.robot.meaning;
  const mine = state.operator.holder === link.number;
  const taken = state.operator.holder !== null && !mine;
  const why = !state.actor_connected ? "no actor is running: nothing can be relabelled" : taken ? `${state.operator.name} is the operator` : "";
  $("label-note").textContent = why;
  for (const button of document.querySelectorAll("[data-kind]")) {
    if (button.tagName === "BUTTON") button.disabled = Boolean(why) || !chosen;
  }
});
// What came last says nothing of a robot that is not heard any more.
setInterval(() => {
  const lost = isLost();
  $("lost").hidden = !lost;
  if (!lost || !state) return;
  $("safety").textContent = "unknown";
  $("authority").dataset.who = "nobody";
  $("authority-who").textContent = `${WORDS[state.robot.authority]}?`;
  $("authority-why").textContent = "";
}, 200);
// A page that has the lock is heard; nobody drives from here.
let sequence = 0;
setInterval(() => {
  if (!link.open || document.hidden || !state || state.operator.holder !== link.number) return;
  send({
    type: "stick", seq: sequence++, t: serverNow(), connection: connectionName(),
    axes: [0, 0, 0, 0, 0, 0], clutch: false, device: "review",
  });
}, 100);
start(() => localStorage.getItem("name") || "");
load();
addEventListener("resize", draw);
