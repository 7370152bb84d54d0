// The console's page: shows the server's snapshot, and turns buttons and keys into commands.

import { drawAction, layout } from "./action.js";
import { AXES, chooseDevice, drive, driveKey, forgetLostKeys, letGo, makeGrip, makePad, startDrive } from "./drive.js";
import { clock, command, hello, isLost, link, on, serverNow, start, stop } from "./link.js";
import { Plot } from "./plot.js";
import { ages, Camera } from "./video.js";

const $ = (testid) => document.querySelector(`[data-testid="${testid}"]`);
const WHO = { policy: ["▶", "POLICY"], human: ["◆", "HUMAN"], paused: ["Ⅱ", "PAUSED"], nobody: ["■", "NOBODY"] };
const STOPPED = { estop: "STOPPED", safe_stop: "STOPPING" };
const DRAW_MS = 50;

const REFUSAL_SECONDS = 10; // the loop tells its last refusal for ever

let state = null;
let refused = { text: null, since: -Infinity };
let dirty = true;
const cameras = new Map();
let mainCamera = "";
const plot = new Plot($("plot"));
const axisRows = [];
const jointRows = [];

// Small helpers of the page

function put(testid, text) {
  const element = $(testid);
  if (element.textContent !== text) element.textContent = text;
}
function show(testid, visible) {
  const element = $(testid);
  if (element.hidden === visible) element.hidden = !visible;
}
function number(value, digits = 2, unit = "") {
  return typeof value === "number" && Number.isFinite(value) ? `${value.toFixed(digits)}${unit}` : "–";
}
function percent(value) {
  return typeof value === "number" ? `${Math.round(100 * value)} %` : "–";
}
function seconds(value) {
  if (typeof value !== "number") return "–";
  const minutes = Math.floor(value / 60);
  return `${minutes}:${(value - 60 * minutes).toFixed(1).padStart(4, "0")}`;
}

let messageTimer = 0;
function say(text) {
  put("message", text);
  show("message", Boolean(text));
  clearTimeout(messageTimer);
  if (text) messageTimer = setTimeout(() => show("message", false), 6000);
}

async function ask(verb, args = {}) {
  const reply = await command(verb, args);
  if (!reply.ok) say(reply.why || `'${verb}' was refused`);
  return reply;
}

/** A person says where a policy on legs walks; the policy stays in charge. */
const steers = () => Boolean(state && state.teleop && state.teleop.steers && state.teleop.leads);
const isOperator = () => Boolean(state && state.operator.holder === link.number);

// Stop

async function stopNow() {
  const asked = stop(); // before anything else
  letGo("stop", false);
  $("stop").dataset.state = "pressed";
  const reply = await asked;
  $("stop").dataset.state = reply && reply.ok ? "" : "unconfirmed";
  if (!reply || !reply.ok) say(`STOP was not confirmed: ${reply ? reply.why : "no reply"}. Use the emergency stop of the robot.`);
}

// Buttons

const BUTTONS = {
  "operator-acquire": () => ask("acquire"),
  "operator-ask": () => ask("ask"),
  "operator-release": () => ask("release"),
  grant: () => ask("grant"),
  deny: () => ask("deny"),
  "take-over": () => ask("take_over"),
  "give-back": giveBack,
  hold: () => ask("hold"),
  "reset-stop": () => ask("reset_stop"),
  arm: () => ask("arm"),
  disarm: () => ask("disarm"),
  "segment-recovery": () => ask("segment", { kind: "recovery" }),
  "segment-correction": () => ask("segment", { kind: "correction" }),
  "rewind-1": () => ask("rewind", { seconds: 1 }),
  "rewind-3": () => ask("rewind", { seconds: 3 }),
  "rewind-5": () => ask("rewind", { seconds: 5 }),
  success: () => ask("success"),
  fail: () => ask("fail"),
  discard: async () => {
    const reply = await ask("discard", { what: $("discard-what").value, reason: $("reason").value.trim() || null });
    if (reply.ok) $("reason").value = "";
  },
  undo: () => ask("undo"),
  "toast-undo": () => ask("undo"),
  "end-episode": () => ask("end_episode"),
  reset: () => ask("reset"),
  ready: () => ask("ready"),
  skip: () => ask("skip"),
  freeze: () => ask(state.actor.frozen ? "release_policy" : "freeze_policy"),
  "pause-learning": () => ask(learningPaused() ? "resume_learning" : "pause_learning"),
  evaluate: () => ask("evaluate", { episodes: state.actor.evaluating ? 0 : Math.round(Number($("evaluate-count").value)) }),
  rollback: () => $("rollback-dialog").show(),
  "rollback-cancel": () => $("rollback-dialog").close(),
  "rollback-confirm": async () => {
    const reply = await ask("rollback", { checkpoint: $("checkpoint").value.trim() || "last" });
    if (reply.ok) $("rollback-dialog").close();
  },
  "open-help": () => toggleHelp(),
  "close-help": () => $("help").close(),
  "invite-close": () => $("invite-dialog").close(),
  invite,
  "frame-base": () => ask("set", { values: { frame: "base" } }),
  "frame-tool": () => ask("set", { values: { frame: "tool" } }),
};
for (const [testid, act] of Object.entries(BUTTONS)) {
  $(testid).addEventListener("click", (event) => {
    event.currentTarget.blur(); // the next key is for the robot, not for this button
    act();
  });
}
$("stop").addEventListener("pointerdown", stopNow); // not the click: that comes with the release
$("stop").addEventListener("click", (event) => {
  if (event.detail === 0) stopNow(); // by a screen reader, or by a test
});

function giveBack() {
  const steered = steers() && state.robot.safety === "policy"; // after a stop B asks for the policy
  const human = state && (state.robot.authority === "human" || steered);
  return ask(human && state.teleop ? "give_back" : "policy");
}
function learningPaused() {
  const learner = (state && state.actor.learner) || {};
  return Boolean(learner.paused || state.actor.learning_paused);
}
function toggleSegment() {
  const segment = state && state.teleop && state.teleop.segment;
  return ask("segment", { kind: segment === "recovery" ? "correction" : "recovery" });
}
function toggleHelp() {
  const help = $("help");
  if (help.open) help.close();
  else help.show();
}
async function invite() {
  const reply = await fetch("/api/invite", {
    method: "POST", headers: { "X-Console-Client": sessionStorage.getItem("key") || "" },
  });
  if (!reply.ok) {
    say(await reply.text());
    return;
  }
  $("invite-url").value = (await reply.json()).url;
  $("invite-dialog").show();
  $("invite-url").select();
}

// Keys

const SHORTCUTS = {
  KeyT: BUTTONS["take-over"], KeyB: BUTTONS["give-back"], KeyH: BUTTONS.hold, KeyX: toggleSegment,
  KeyS: BUTTONS.success, KeyF: BUTTONS.fail, KeyD: BUTTONS.discard, KeyU: BUTTONS.undo,
  KeyE: BUTTONS["end-episode"], KeyR: BUTTONS.reset, Enter: BUTTONS.ready, NumpadEnter: BUTTONS.ready,
};
const writesWords = (target) => target instanceof HTMLElement
  && target.matches("input:not([type=range]):not([type=checkbox]):not([type=number]):not([readonly]), textarea");
const writes = (target) => writesWords(target)
  || (target instanceof HTMLElement && target.matches("input[type=number]"));

addEventListener("keydown", (event) => {
  forgetLostKeys(event);
  if (event.code === "Escape" || (event.code === "Space" && !writesWords(event.target))) {
    event.preventDefault();
    if (!event.repeat) stopNow();
    return;
  }
  if (writes(event.target) || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === "?") {
    toggleHelp();
    return;
  }
  const takesEnter = event.target instanceof HTMLElement && event.target.matches("button, a, select, input, summary");
  if (event.code === "Enter" && takesEnter) return; // it is for what has the focus
  if (driveKey(event.code, true, event.repeat)) {
    if (!(event.target instanceof HTMLSelectElement)) event.preventDefault();
    return;
  }
  const act = SHORTCUTS[event.code];
  if (act && !event.repeat) {
    event.preventDefault();
    act();
  }
});
addEventListener("keyup", (event) => {
  forgetLostKeys(event);
  if (event.code === "Space" && !writesWords(event.target)) event.preventDefault();
  driveKey(event.code, false);
});

// Fields

$("operator-name").value = localStorage.getItem("name") || "";
$("operator-name").addEventListener("change", (event) => {
  localStorage.setItem("name", event.target.value);
  hello(event.target.value);
});
$("operator-name").addEventListener("keydown", (event) => {
  if (event.key === "Enter") event.target.blur();
});
$("reason").addEventListener("keydown", (event) => {
  if (event.key === "Enter") event.target.blur(); // the next D discards
});
$("note").addEventListener("keydown", async (event) => {
  if (event.key !== "Enter" || !event.target.value.trim()) return;
  const reply = await ask("note", { text: event.target.value.trim() });
  if (!reply.ok) return;
  event.target.value = "";
  event.target.blur(); // Space stops again
});
$("device").value = drive.device;
$("device").addEventListener("change", (event) => {
  chooseDevice(event.target.value);
  event.target.blur();
});
$("speed").addEventListener("input", (event) => {
  put("speed-text", `${event.target.value} %`);
});
$("speed").addEventListener("change", (event) => {
  ask("set", { values: { speed: Number(event.target.value) / 100 } });
  event.target.blur();
});

const body = $("axes").querySelector("tbody");
AXES.forEach((name, index) => {
  const row = body.insertRow();
  row.innerHTML = `<td>${name}</td><td><input type="checkbox" data-testid="lock-${name}" aria-label="lock ${name}"></td>
    <td><div class="meter" data-testid="raw-${name}"><b></b></div></td><td></td>
    <td><input type="number" min="0" max="0.9" step="0.02" data-testid="deadband-${name}" aria-label="deadband ${name}"></td>`;
  const [lock, band] = row.querySelectorAll("input");
  lock.addEventListener("change", () => {
    const locked = [...state.settings.locked];
    locked[index] = lock.checked;
    ask("set", { values: { locked } });
    lock.blur();
  });
  band.addEventListener("change", () => {
    const deadband = [...state.settings.deadband];
    deadband[index] = Number(band.value);
    ask("set", { values: { deadband } });
    band.blur();
  });
  axisRows.push({ lock, band, bar: row.querySelector("b"), text: row.cells[3] });
});
const drawPads = [makePad($("pad-xy"), "xy", ["x", "y"]), makePad($("pad-zyaw"), "zyaw", ["z", "yaw"]),
  makePad($("pad-pitchroll"), "pitchroll", ["pitch", "roll"])];
makeGrip($("grip"));

// Drawing

function drawAuthority(robot) {
  const lost = isLost();
  const stopped = STOPPED[robot.safety];
  const [glyph, word] = steers() && robot.authority === "policy" ? ["◆", "STEERED"] : WHO[robot.authority];
  const human = robot.authority === "human" || word === "STEERED";
  const banner = $("authority");
  banner.dataset.who = human ? "human" : robot.authority;
  banner.dataset.stopped = String(Boolean(stopped));
  put("authority-glyph", stopped ? "⬣" : glyph);
  put("authority-who", lost ? `${word}?` : stopped || word);
  const holder = human ? `${state.operator.name || "a person"} ${steers() ? "steers" : "drives"}: ` : "";
  const meaning = human && steers() ? "the policy walks where its goal says" : robot.meaning;
  put("authority-why", robot.silent || holder + meaning);
  put("safety", robot.safety);
  put("robot-name", robot.name);
  document.title = `${robot.name} · ${stopped || word}`;
  show("lease", Boolean(state.teleop) && human);
  put("lease-text", state.stick.present ? "dead-man" : "released");
  $("lease-bar").style.width = `${Math.min(100, (100 * state.stick.left) / 0.22)}%`;
  show("lost", lost);
}

function drawOperator() {
  const { holder, name, left, asker, asker_name: askerName, ask_left: askLeft } = state.operator;
  const mine = isOperator();
  put("operator-who", holder === null ? "nobody: look on, stop and hold" : mine ? `you · lease ${left.toFixed(1)} s` : `${name} · you look on`);
  show("operator-acquire", holder === null);
  show("operator-ask", holder !== null && !mine);
  show("operator-release", mine);
  $("operator-ask").disabled = asker !== null;
  put("operator-ask", asker === link.number ? `asked · ${askLeft.toFixed(0)} s` : "Ask for it");
  show("ask", mine && asker !== null);
  put("ask-text", `${askerName} asks for control (${askLeft.toFixed(0)} s)`);
}

const goalText = (goal) => `goal ${number(goal[0])}, ${number(goal[1])} m/s, ${number(goal[2])} rad/s`;
function drawTeleop(robot) {
  const teleop = state.teleop;
  const asking = teleop && teleop.asking ? `${teleop.asking.replaceAll("_", " ")} …` : "";
  put("teleop-phase", !teleop ? "no teleoperation here" : asking || (teleop.rewinding ? "going back" : steers() ? goalText(teleop.goal) : ""));
  let bar = null;
  if (teleop && teleop.rewinding) bar = ["going back", teleop.rewind_progress || 0];
  else if (teleop && ["human", "policy"].includes(robot.authority) && teleop.handover < 1) {
    bar = [`hand-over to the ${robot.authority === "human" ? "person" : "policy"}`, teleop.handover];
  }
  else if (asking) bar = ["asking", 0];
  show("handover", bar !== null);
  if (bar) {
    $("handover").dataset.to = robot.authority;
    $("handover-bar").style.width = `${100 * bar[1]}%`;
    put("handover-text", `${bar[0]} ${Math.round(100 * bar[1])} %`);
  }
  const refusal = (teleop && teleop.refusal) || robot.refused;
  if (refusal !== refused.text) refused = { text: refusal, since: refused.text === null ? -Infinity : clock() };
  show("refusal", Boolean(refusal) && clock() - refused.since < REFUSAL_SECONDS);
  put("refusal", refusal || "");
  const segment = teleop && teleop.segment;
  $("segment-recovery").setAttribute("aria-pressed", String(segment === "recovery"));
  $("segment-correction").setAttribute("aria-pressed", String(segment === "correction"));
}

function drawDrive() {
  const stick = state.stick;
  const stuck = Boolean(stick.stuck);
  $("clutch").dataset.on = stuck ? "stuck" : String(isOperator() ? stick.clutch : drive.clutch);
  put("clutch", stuck ? `${stick.stuck} is stuck` : "clutch");
  put("device-state", isOperator() ? (stick.present ? "heard" : "not heard") : "not operator");
  drive.host = stick.host;
  put("drive-hint", drive.hint);
  $("device").disabled = Boolean(stick.host);
  show("pads", drive.device === "pad" && !stick.host);
  if (drive.device === "pad") for (const draw of drawPads) draw();
  const axes = isOperator() && !stick.host ? drive.axes : stick.axes;
  axisRows.forEach((row, index) => {
    const value = axes[index];
    row.bar.style.left = `${50 + 50 * Math.min(0, value)}%`;
    row.bar.style.width = `${50 * Math.abs(value)}%`;
    const inside = Math.abs(value) <= state.settings.deadband[index];
    row.bar.dataset.level = state.settings.locked[index] || inside ? "" : "near";
    const text = value.toFixed(2);
    if (row.text.textContent !== text) row.text.textContent = text;
    if (document.activeElement !== row.band) row.band.value = state.settings.deadband[index];
    row.lock.checked = state.settings.locked[index];
  });
  if (document.activeElement !== $("speed")) {
    $("speed").value = Math.round(100 * state.settings.speed);
    put("speed-text", `${Math.round(100 * state.settings.speed)} %`);
  }
  for (const name of ["base", "tool"]) {
    $(`frame-${name}`).setAttribute("aria-pressed", String(state.settings.frame === name));
  }
}

function drawEpisode() {
  const actor = state.actor;
  put("episode", actor.episode === undefined ? "–" : `#${actor.episode}`);
  put("episode-time", seconds(actor.time));
  put("episode-step", actor.step === undefined ? "–" : String(actor.step));
  put("episode-phase", state.actor_connected ? actor.phase || "–" : "no actor");
  const phase = state.actor_connected ? actor.phase || "" : "";
  $("prompt").dataset.phase = phase;
  const words = { running: "The episode runs.", evaluating: "Evaluation: the policy acts without noise.", reset: "The scene is being reset.", waiting: "Is the scene ready?" };
  const frozen = actor.frozen ? ` The policy is frozen at v${actor.policy_version}.` : "";
  put("prompt-text", state.actor_connected ? actor.prompt || (words[phase] || "") + frozen : "No actor is running: the robot can be watched, stopped and driven, nothing is learnt.");
  const step = state.actor_connected && actor.reset;
  show("ready", phase === "waiting" && (!step || step.asks));
  drawReset(step, actor.progress);
  drawNewestAction(actor);
  const label = state.label;
  show("toast", Boolean(label));
  if (label) {
    const what = label.what && label.what !== "episode" ? ` (${label.what})` : "";
    $("toast").dataset.do = label.do;
    put("toast-text", `${label.episode ? `Episode ${label.episode.split("_").pop()}: ` : ""}${label.do}${what} by ${label.operator}`);
    $("toast-bar").style.width = `${20 * label.left}%`;
  }
}

/** Present step of a reset, the time that it has taken, and the part of the whole that is done. */
function drawReset(step, progress) {
  show("reset-step", Boolean(step));
  show("skip", Boolean(step && step.may_skip));
  if (!step) return;
  const name = step.asks ? "waits for a person" : step.step.replaceAll("_", " ");
  put("reset-step", `reset, step ${step.number} of ${step.count}: ${name}, ${step.seconds.toFixed(0)} s · ${percent(progress)}`);
}

function drawNewestAction(actor) {
  const names = (state.actor_connected && actor.action_names) || [];
  const known = names.length > 0 && actor.action.length === names.length && actor.asked.length === names.length;
  show("action", known);
  if (!known) return;
  const canvas = $("action");
  const asked = names.map((name, index) => `${name} ${number(actor.asked[index])}`).join(", ");
  canvas.title = `the policy asks: ${asked}`;
  canvas.style.width = `${layout(names, canvas.clientHeight).width}px`;
  const drawable = (values) => values.map((one) => one ?? 0); // what is no number comes as null
  drawAction(canvas, names, drawable(actor.asked), drawable(actor.action), actor.who === "human");
}

function drawEvaluation(actor) {
  const found = actor.evaluation || {};
  const runs = Boolean(actor.evaluating);
  const of = found.episodes < found.of ? ` of ${found.of}` : "";
  const range = found.interval && found.interval.map((one) => Math.round(100 * one)).join("–");
  put("evaluation", found.episodes
    ? `v${found.version}: ${found.successes} successes in ${found.episodes}${of} trials, ${range} % (95 %)`
    : runs ? "no trial is over yet" : "not evaluated yet");
  put("evaluate", runs ? "End trials" : "Evaluate");
}

const count = (value) => Math.round(value).toLocaleString("en");
const small = (value) => value.toPrecision(3);
const duration = (value) => number(value, 1, " s");
const LEARNER_NUMBERS = [
  ["unaided_success", "success alone", percent], ["helped_episodes", "episodes with help", percent],
  ["success_seconds", "time to success", duration], ["episode_seconds", "episode length", duration],
  ["critic_loss", "critic loss", small], ["actor_loss", "actor loss", small],
  ["temperature", "temperature", small], ["q_mean", "mean Q", small],
  ["online_rows", "online steps", count], ["prior_rows", "prior steps", count],
  ["intervened_steps", "human steps", count], ["corrections", "corrections", count],
  ["steps", "steps in all", count], ["updates", "updates", count],
];
function drawLearning() {
  const actor = state.actor;
  const learner = actor.learner || {};
  put("success-rate", percent(actor.success_rate));
  const range = actor.success_interval;
  put("success-interval", range ? `${Math.round(100 * range[0])}–${Math.round(100 * range[1])} %` : "");
  put("intervention-rate", percent(actor.intervention_rate));
  put("episodes", actor.episodes === undefined ? "–" : String(actor.episodes));
  put("robot-minutes", typeof actor.robot_minutes === "number" ? `${actor.robot_minutes.toFixed(1)} robot min` : "");
  put("updates", number(learner.updates_per_second, 1));
  put("utd", typeof learner.utd === "number" ? `UTD ${learner.utd.toFixed(1)}${learner.utd_wanted ? ` of ${learner.utd_wanted}` : ""}` : "");
  put("weights-version", actor.policy_version === undefined ? "–" : `v${actor.policy_version}`);
  const due = typeof learner.version === "number" && learner.version > actor.policy_version ? ` · v${learner.version} due` : "";
  put("weights-age", typeof actor.weights_age === "number" ? `${actor.weights_age.toFixed(0)} s${due || " old"}` : "");
  put("spool", typeof actor.spool === "number" ? `${(actor.spool / 1e6).toFixed(1)} MB` : "–");
  put("unacked", actor.unacked === undefined ? "" : `${actor.unacked} unacked`);
  $("spool").parentElement.dataset.level = actor.unacked > 2000 ? "bad" : "";
  $("learning-state").dataset.level = actor.link ? "bad" : "";
  put("learning-state", actor.link || (!state.actor_connected ? "no actor" : learningPaused() ? "paused" : learner.state || (Object.keys(learner).length ? "learning" : "no learner")));
  put("pause-learning", learningPaused() ? "Resume" : "Pause");
  put("freeze", actor.frozen ? `Release v${actor.policy_version}` : "Freeze policy");
  $("freeze").setAttribute("aria-pressed", String(Boolean(actor.frozen)));
  drawEvaluation(actor);
  const known = LEARNER_NUMBERS.filter(([name]) => typeof learner[name] === "number");
  const box = $("metrics");
  while (box.children.length > known.length) box.lastChild.remove();
  known.forEach(([name, label, shown], index) => {
    const cell = box.children[index] || box.appendChild(document.createElement("span"));
    if (!cell.firstChild) cell.append(document.createTextNode(""), document.createElement("b"));
    cell.firstChild.nodeValue = `${label} `;
    cell.lastChild.textContent = shown(learner[name]);
  });
  put("success-probability", number(actor.success_probability, 2));
  put("q", number(actor.q, 2));
}

function meter(bar, value, limit) {
  const known = typeof value === "number" && typeof limit === "number" && limit > 0;
  const share = known ? Math.abs(value) / limit : 0;
  bar.style.width = `${Math.min(100, 100 * share)}%`;
  bar.dataset.level = share > 1 ? "over" : share > 0.8 ? "near" : "";
}
function drawRobot(robot) {
  const table = $("joints").querySelector("tbody");
  while (jointRows.length < robot.joints.length) {
    const row = table.insertRow();
    row.innerHTML = `<td></td><td><div class="meter mark"><b></b></div></td><td></td>
      <td><div class="meter fill"><b></b></div></td>
      <td><div class="meter fill"><b></b></div><span class="unmeasured">not measured</span></td>`;
    jointRows.push({ cells: row.cells, bars: row.querySelectorAll("b") });
  }
  while (jointRows.length > robot.joints.length) {
    table.deleteRow(-1);
    jointRows.pop();
  }
  robot.joints.forEach((joint, index) => {
    const { cells, bars } = jointRows[index];
    if (cells[0].textContent !== joint.name) cells[0].textContent = cells[0].title = joint.name;
    const span = joint.upper - joint.lower;
    const share = span > 0 && joint.q !== null ? (joint.q - joint.lower) / span : 0.5;
    bars[0].style.left = `${Math.max(0, Math.min(100, 100 * share))}%`;
    bars[0].dataset.level = share < 0 || share > 1 ? "over" : share < 0.08 || share > 0.92 ? "near" : "";
    const text = number(joint.q, 2);
    if (cells[2].textContent !== text) cells[2].textContent = text;
    meter(bars[1], joint.dq, joint.dq_limit);
    meter(bars[2], joint.tau, joint.tau_limit);
    bars[2].parentElement.hidden = typeof joint.tau !== "number"; // a base has none, null is not measured
    cells[4].lastChild.hidden = joint.tau !== null;
  });
  const wrench = robot.wrench;
  show("force", Boolean(wrench));
  if (wrench) {
    const limit = wrench.force_limit;
    meter($("force").querySelector("b"), wrench.force, limit);
    put("force-text", `${number(wrench.force, 1)} ${limit === null ? "N, no limit" : `of ${number(limit, 0)} N`} · torque ${number(wrench.torque, 2)} N m`);
  }
  const parts = [];
  if (robot.gripper !== null && robot.gripper !== undefined) parts.push(`gripper ${Math.round(100 * robot.gripper)} %`);
  if (robot.position) parts.push(`at ${robot.position.map((one) => number(one, 2)).join(", ")} m`);
  if (robot.clamped) parts.push(`clamped ${robot.clamped}`);
  if (robot.missed) parts.push(`missed ${robot.missed}`);
  put("robot-numbers", parts.join(" · "));
  put("conditions", robot.conditions.map((one) => one.replaceAll("_", " ")).join(" · "));
  show("conditions", robot.conditions.length > 0);
  show("trip", Boolean(robot.trip));
  put("trip", robot.trip ? `last stop: ${robot.trip}` : "");
}

let shownLog = "";
function drawLog() {
  const newest = state.log[state.log.length - 1];
  const mark = newest ? `${state.log.length} ${newest.time} ${newest.action}` : "";
  if (mark === shownLog) return;
  shownLog = mark;
  $("log").replaceChildren(...[...state.log].reverse().map((entry) => {
    const item = document.createElement("li");
    item.className = entry.why ? "bad" : "";
    const time = document.createElement("time");
    time.textContent = new Date(1000 * entry.time).toTimeString().slice(0, 8);
    const action = document.createElement("b");
    action.textContent = entry.action.replaceAll("_", " ");
    const words = document.createElement("span");
    words.textContent = [entry.operator.replace(/ \(page \d+\)$/, ""), entry.text, entry.kind, entry.reason, entry.result, entry.why].filter(Boolean).join(" · ");
    item.append(time, action, words);
    return item;
  }));
}

function badge(testid, name, ms, limit) {
  const element = $(testid);
  const known = typeof ms === "number" && Number.isFinite(ms);
  put(testid, `${name} ${known ? (ms < 10000 ? `${Math.round(ms)} ms` : `${Math.round(ms / 1000)} s`) : "–"}`);
  element.dataset.level = !known ? "" : ms > limit ? "bad" : "good";
}

function drawCameras() {
  if (!cameras.size && state.video.length) {
    state.video.forEach((one, index) => cameras.set(one.name, new Camera(one.name, `camera-${index}`)));
    for (const [name, camera] of cameras) {
      camera.element.addEventListener("click", () => placeCameras(name));
    }
    placeCameras(state.video[0].name);
  }
  if (!state.video.length && !$("main-camera").children.length) {
    const empty = document.createElement("div");
    empty.className = "nocamera";
    empty.textContent = "No camera is configured";
    $("main-camera").append(empty);
  }
  let age = null;
  for (const one of state.video) {
    const found = cameras.get(one.name).refresh(one);
    if (one.name === mainCamera) age = found;
  }
  badge("badge-video", "video", age === null ? null : 1000 * age, 300);
}
function placeCameras(name) {
  mainCamera = name;
  $("main-camera").replaceChildren(cameras.get(name).element);
  $("camera-strip").replaceChildren(...[...cameras].filter(([other]) => other !== name).map(([, one]) => one.element));
}

const FOR_OPERATOR = ["take-over", "give-back", "reset-stop", "arm", "disarm", "segment-recovery",
  "segment-correction", "rewind-1", "rewind-3", "rewind-5", "success", "fail", "discard", "undo", "toast-undo",
  "end-episode", "reset", "skip", "ready", "pause-learning", "freeze", "rollback", "evaluate", "speed", "frame-base", "frame-tool"];
const FOR_ACTOR = new Set(["success", "fail", "discard", "undo",
  "end-episode", "reset", "skip", "ready", "pause-learning", "freeze", "rollback", "evaluate"]);
function drawRights(robot) {
  const mine = isOperator() && link.open;
  for (const testid of FOR_OPERATOR) {
    $(testid).disabled = !mine || (FOR_ACTOR.has(testid) && !state.actor_connected);
  }
  const byGoal = Boolean(state.teleop && state.teleop.steers);
  const handed = byGoal ? robot.safety === "policy" && !steers() : ["ready", "policy"].includes(robot.safety);
  $("take-over").disabled ||= !state.teleop || !handed;
  $("give-back").disabled ||= !steers() && !["ready", "human"].includes(robot.safety);
  $("reset-stop").disabled ||= !["estop", "safe_stop"].includes(robot.safety);
  $("arm").disabled ||= !["passive", "hold"].includes(robot.safety);
  $("disarm").disabled ||= ["passive", "estop", "none", "safe_stop"].includes(robot.safety);
  for (const part of ["recovery", "correction"]) $(`segment-${part}`).disabled ||= !state.teleop || byGoal || !state.teleop.leads;
  for (const back of [1, 3, 5]) $(`rewind-${back}`).disabled ||= !state.teleop || byGoal || !["human", "policy"].includes(robot.authority);
  for (const row of axisRows) row.lock.disabled = row.band.disabled = !mine;
  $("reason").disabled = !mine || !state.actor_connected;
  $("evaluate-count").disabled = !mine || !state.actor_connected || Boolean(state.actor.evaluating);
}

function draw() {
  if (!state) return;
  drawAuthority(state.robot);
  badge("badge-link", "link", link.open && link.rtt !== null ? 1000 * link.rtt : null, 150);
  badge("badge-state", "state", typeof state.robot.state_age === "number" ? 1000 * state.robot.state_age : null, 100);
  badge("badge-actor", "actor", state.actor_connected && state.actor_age !== null ? 1000 * state.actor_age : null, 500);
  drawCameras();
  drawDrive();
  plot.draw(serverNow());
  if (!dirty) return;
  dirty = false;
  drawOperator();
  drawTeleop(state.robot);
  drawEpisode();
  drawLearning();
  drawRobot(state.robot);
  drawLog();
  drawRights(state.robot);
}

on("state", (message) => {
  state = message;
  dirty = true;
  const actor = message.actor;
  const known = (value) => (typeof value === "number" ? value : null);
  plot.add(message.now, message.robot.authority, known(actor.success_probability), known(actor.q));
});
on("welcome", (message) => {
  if (message.history) plot.replace(message.history);
  say("");
});
on("closed", () => { dirty = true; });
on("error", (message) => say(message.why));
setInterval(draw, DRAW_MS);
startDrive({
  enabled: isOperator,
  onButton: (name) => ({ take_over: BUTTONS["take-over"], give_back: giveBack, segment: toggleSegment })[name](),
});
start(() => localStorage.getItem("name") || "");

window.consoleProbe = { ages, link, drive, state: () => state }; // for tests and measurements
