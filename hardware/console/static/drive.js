// Devices of a person: keyboard, gamepad, on-screen pad. All are read at 50 Hz, as the robot's
// teleoperator ticks, and sent as a whole state, so a message that is lost costs nothing.

import { connectionName, link, send, serverNow } from "./link.js";

export const AXES = ["x", "y", "z", "roll", "pitch", "yaw"];
const SEND_MS = 20;
const GRIP_MS = 100;
const KEYS = {
  ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [1, 1], ArrowRight: [1, -1],
  PageUp: [2, 1], PageDown: [2, -1], KeyN: [3, 1], KeyM: [3, -1],
  KeyI: [4, 1], KeyK: [4, -1], KeyJ: [5, 1], KeyL: [5, -1],
};

const HOST_HINTS = {
  gamepad: "The gamepad at the robot's computer leads; keep this page open. RB clutch · A gripper · "
    + "LB take over, give back · Y success · B fail · X discard · Start recovery/correction",
  spacemouse: "The SpaceMouse at the robot's computer leads; keep this page open. Left button clutch"
    + " · right button gripper · T take over · B give back",
};

const held = new Set();
const pads = { xy: null, zyaw: null, pitchroll: null };
const pressed = { gripper: false };
let sequence = 0;
let padButtons = {};
let released = false; // the gamepad's clutch was let go for it
let enabled = () => false;
let onButton = () => {};

export const drive = {
  device: localStorage.getItem("device") || "keyboard",
  axes: [0, 0, 0, 0, 0, 0],
  clutch: false,
  hint: "",
  gamepad: "",
  host: "", // kind of the stick at the robot's computer, which leads in place of this page's
};

export const isDriveKey = (code) => code in KEYS || code === "ShiftLeft" || code === "ShiftRight";

export function startDrive(options) {
  enabled = options.enabled;
  onButton = options.onButton;
  setInterval(beat, SEND_MS);
  addEventListener("blur", () => letGo("the window lost the focus", false));
  addEventListener("pagehide", () => letGo("the page was left", true));
  addEventListener("freeze", () => letGo("the page was frozen", true));
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) letGo("the page is hidden", true);
  });
  addEventListener("gamepaddisconnected", () => letGo("the gamepad has gone", false));
}

/** A key that drives; returns true if it was one. A key that repeats itself after `letGo` has to be pressed anew. */
export function driveKey(code, down, repeats = false) {
  if (code === "KeyG") {
    if (!repeats) pressed.gripper = down;
    return true;
  }
  if (!isDriveKey(code)) return false;
  if (repeats) return true;
  if (down) held.add(code);
  else held.delete(code);
  beat(); // a person waits for no timer
  return true;
}

/** Let go of keys whose release no browser tells: one of two Shifts on Windows, any beside Command on macOS. */
export function forgetLostKeys(event) {
  const before = held.size;
  if (!event.shiftKey) for (const code of ["ShiftLeft", "ShiftRight"]) held.delete(code);
  if (event.metaKey || event.key === "Meta") held.clear();
  if (held.size < before) beat();
}

export function chooseDevice(name) {
  letGo("another device was chosen", false);
  padButtons = {}; // nobody reads of a gamepad any more that a button was let go
  drive.device = name;
  localStorage.setItem("device", name);
}

/** Release clutch and axes; `gone` also gives the lease back at once. */
export function letGo(why, gone) {
  held.clear();
  released = true;
  for (const name of Object.keys(pads)) pads[name] = null;
  pressed.gripper = false;
  if (link.open) {
    beat();
    if (gone) send({ type: "release", why });
  }
}

function beat() {
  read();
  if (document.hidden || !link.open || !enabled()) return;
  send({
    type: "stick", seq: sequence++, t: serverNow(), connection: connectionName(), axes: drive.axes,
    clutch: drive.clutch, gripper: pressed.gripper || Boolean(padButtons.gripper),
    device: drive.device === "gamepad" ? drive.gamepad.slice(0, 40) : drive.device,
  });
}

function read() {
  drive.hint = "";
  if (drive.host) return rest();
  if (drive.device === "gamepad") readGamepad();
  else if (drive.device === "pad") readPads();
  else readKeys();
}

/** The stick at the robot's computer leads: this page only says that the operator is there. */
function rest() {
  drive.axes = [0, 0, 0, 0, 0, 0];
  drive.clutch = false;
  pressed.gripper = false;
  padButtons = {};
  drive.hint = HOST_HINTS[drive.host] || "";
}

function readKeys() {
  drive.axes = [0, 0, 0, 0, 0, 0];
  for (const code of held) {
    const found = KEYS[code];
    if (found) drive.axes[found[0]] += found[1];
  }
  drive.clutch = held.has("ShiftLeft") || held.has("ShiftRight");
  drive.hint = "Hold Shift (clutch) and: arrows x, y · PgUp/PgDn z · J L yaw · I K pitch · N M roll · G gripper";
}

function readPads() {
  const xy = pads.xy || [0, 0];
  const zyaw = pads.zyaw || [0, 0];
  const [roll, pitch] = pads.pitchroll || [0, 0];
  drive.axes = [xy[1], -xy[0], zyaw[1], roll, pitch, -zyaw[0]];
  drive.clutch = Object.values(pads).some(Boolean);
  drive.hint = "Hold a pad and pull. Letting go of all lets the clutch go.";
}

function readGamepad() {
  const all = (navigator.getGamepads ? [...navigator.getGamepads()] : []).filter((one) => one);
  const found = all.find((one) => one.mapping === "standard"); // of others nobody knows which axis is which
  drive.axes = [0, 0, 0, 0, 0, 0];
  drive.clutch = false;
  drive.gamepad = found ? found.id : "";
  if (!found) {
    padButtons = {};
    drive.hint = all.length
      ? `${all[0].id.slice(0, 48)}: the browser does not know where its sticks are. Use another pad, or one at the robot's computer.`
      : "No gamepad: connect one and press any of its buttons.";
    return;
  }
  const axis = (index) => Math.max(-1, Math.min(1, found.axes[index] || 0));
  const down = (index) => Boolean(found.buttons[index] && found.buttons[index].pressed);
  const turns = down(4); // LB: the right stick is roll and pitch
  drive.axes = [-axis(1), -axis(0), turns ? 0 : -axis(3), turns ? axis(2) : 0, turns ? -axis(3) : 0,
    turns ? 0 : -axis(2)].map((value) => Math.round(1e4 * value) / 1e4);
  if (!down(5)) released = false;
  drive.clutch = down(5) && !released; // let go, it has to be pressed anew
  const now = { gripper: down(0), segment: down(2), give_back: down(8), take_over: down(9) };
  for (const name of ["segment", "give_back", "take_over"]) {
    if (now[name] && !padButtons[name]) onButton(name);
  }
  padButtons = now;
  drive.hint = `${found.id.slice(0, 48)} · RB clutch · A gripper · Start take over`;
}

/** Make a canvas a pad; a pointer that holds it is the clutch. */
export function makePad(canvas, name, labels) {
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    pads[name] = [2 * at[0] - 1, 1 - 2 * at[1]].map((one) => Math.max(-1, Math.min(1, one)));
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    place(event);
    beat();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pads[name]) place(event);
  });
  for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) {
    canvas.addEventListener(kind, () => {
      if (!pads[name]) return;
      pads[name] = null;
      beat();
    });
  }
  return () => drawPad(canvas, pads[name], labels);
}

/** Make a button the gripper's; a short press lasts as long as a person's loop needs to see it. */
export function makeGrip(button) {
  button.addEventListener("pointerdown", (event) => {
    button.setPointerCapture(event.pointerId);
    pressed.gripper = true;
    beat();
  });
  button.addEventListener("lostpointercapture", () => {
    setTimeout(() => { pressed.gripper = false; }, GRIP_MS);
  });
}

function drawPad(canvas, at, labels) {
  const g = canvas.getContext("2d");
  const half = canvas.width / 2;
  g.clearRect(0, 0, canvas.width, canvas.height);
  g.strokeStyle = "#2b3442";
  g.beginPath();
  g.moveTo(half, 8);
  g.lineTo(half, 2 * half - 8);
  g.moveTo(8, half);
  g.lineTo(2 * half - 8, half);
  g.stroke();
  g.fillStyle = "#97a3b4";
  g.font = "11px system-ui, sans-serif";
  g.textAlign = "center";
  g.fillText(labels[0], half + 18, 16);
  g.fillText(labels[1], 16, half - 6);
  const [x, y] = at || [0, 0];
  g.beginPath();
  g.arc(half + x * (half - 14), half - y * (half - 14), 12, 0, 2 * Math.PI);
  g.fillStyle = at ? "#e69f00" : "#3a475a";
  g.fill();
}

