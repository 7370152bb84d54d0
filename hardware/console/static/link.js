// The socket to the console: state in, commands and stick out, and the server's clock.

const RETRY_MS = 400;
const PING_MS = 500;
const OLD_STATE = 0.6; // [s]

const listeners = {};
let socket = null;
let connection = "";
let offset = 0; // server's clock minus ours [s]
let pings = []; // [round trip, offset], newest last
let waiting = new Map();

export const link = {
  open: false,
  number: 0,
  rtt: null, // [s]
  heard: -Infinity, // our clock, last state that was not old [s]
  arrived: -Infinity, // our clock, last state [s]
};

export const on = (kind, call) => { (listeners[kind] ||= []).push(call); };
const emit = (kind, value) => { for (const call of listeners[kind] || []) call(value); };

export const clock = () => performance.now() / 1000;
/** What was heard last says nothing of the robot any more. */
export const isLost = () => !link.open || clock() - link.heard > OLD_STATE;
/** Server's clock now [s]. */
export const serverNow = () => clock() + offset;
export const connectionName = () => connection;

export function start(name) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const opened = new WebSocket(`${scheme}://${location.host}/ws`);
  socket = opened;
  opened.onopen = () => hello(name());
  opened.onmessage = (event) => {
    if (opened === socket) take(JSON.parse(event.data));
  };
  opened.onclose = () => {
    if (opened !== socket) return;
    link.open = false;
    connection = "";
    for (const [, end] of waiting) end({ ok: false, code: 0, why: "the connection was lost" });
    waiting.clear();
    emit("closed");
    setTimeout(() => start(name), RETRY_MS);
  };
}

/** Say who this page is; the key makes it the same page after a reload. */
export function hello(name) {
  send({ type: "hello", key: sessionStorage.getItem("key") || "", name });
}

setInterval(() => {
  if (link.open) send({ type: "ping", c: clock() });
  if (link.open && clock() - link.arrived > 3) socket.close(); // a server that is frozen
}, PING_MS);

function take(message) {
  if (message.type === "state") {
    // A page that reads slowly gets states that are old: they say nothing of the robot now.
    link.arrived = clock();
    if (serverNow() - message.now < OLD_STATE) link.heard = clock();
    emit("state", message);
  } else if (message.type === "pong") {
    const round = clock() - message.c;
    pings = [...pings.slice(-7), [round, message.now - message.c - round / 2]];
    const best = pings.reduce((a, b) => (a[0] <= b[0] ? a : b));
    offset = best[1];
    link.rtt = round;
  } else if (message.type === "reply") {
    const end = waiting.get(message.id);
    waiting.delete(message.id);
    if (end) end(message);
  } else if (message.type === "welcome") {
    sessionStorage.setItem("key", message.key);
    connection = message.connection;
    link.number = message.number;
    link.open = true;
    link.heard = link.arrived = clock();
    pings = [];
    offset = message.now - clock();
    send({ type: "ping", c: clock() });
    emit("welcome", message);
  } else if (message.type === "error" || message.type === "dropped") {
    emit(message.type, message);
  }
}

export function send(message) {
  if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

/** Do something; resolves to the reply {ok, code, why}. */
export function command(verb, args = {}) {
  const id = newId();
  const message = { type: "command", id, do: verb, t: serverNow(), ...args };
  return new Promise((resolve) => {
    if (!link.open) {
      resolve({ ok: false, code: 0, why: "no connection to the console" });
      return;
    }
    waiting.set(id, resolve);
    send(message);
    setTimeout(() => {
      if (waiting.delete(id)) resolve({ ok: false, code: 504, why: `no reply to '${verb}'` });
    }, 12000);
  });
}

/** Stop by the socket and by a request beside it: it is done once, and both get the same answer. */
export function stop() {
  const id = newId();
  const body = { id, do: "stop" };
  const bySocket = new Promise((resolve) => {
    if (!link.open) return;
    waiting.set(id, resolve);
    send({ type: "command", ...body });
  });
  const byRequest = fetch("/api/command", {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "X-Console-Client": sessionStorage.getItem("key") || "" },
    keepalive: true,
  }).then((reply) => (reply.ok ? reply.json() : reply.text().then((why) => ({ ok: false, why }))));
  const late = new Promise((resolve) => {
    setTimeout(() => resolve({ ok: false, why: "no reply within a second" }), 1000);
  });
  return Promise.race([bySocket, byRequest.catch(() => late), late]);
}

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
}
