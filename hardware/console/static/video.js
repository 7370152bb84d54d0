// Cameras: one socket each, a JPEG per acknowledgement, drawn into a canvas with its age.

import { on, serverNow } from "./link.js";

const STALE_SECONDS = 0.3;
const HEAD_BYTES = 12; // time [s] as float64, number as uint32
const RETRY_MS = 600;

export const ages = []; // ages at which pictures were drawn [ms], newest last

export class Camera {
  constructor(name, testid) {
    this.name = name;
    this.stamp = null;
    this.flag = "";
    this.element = document.createElement("div");
    this.element.className = "camera";
    this.element.dataset.testid = testid;
    this.element.dataset.badge = "waiting";
    this.canvas = document.createElement("canvas");
    const label = document.createElement("span");
    label.className = "name";
    label.textContent = name;
    this.ageText = document.createElement("span");
    this.ageText.className = "age";
    this.flagText = document.createElement("span");
    this.flagText.className = "flag";
    this.seen = null; // what the policy sees of a picture: part, pixels, grey
    this.asSeen = false;
    this.button = document.createElement("button");
    this.button.className = "seen";
    this.button.dataset.testid = `${testid}-seen`;
    this.button.hidden = true;
    this.button.addEventListener("click", (event) => {
      event.stopPropagation();
      this.button.blur(); // Space stops the robot, and presses nothing
      this.asSeen = !this.asSeen;
    });
    this.element.append(this.canvas, label, this.ageText, this.flagText, this.button);
    this.open();
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws/video/${encodeURIComponent(this.name)}`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = async (event) => {
      const view = new DataView(event.data);
      const stamp = view.getFloat64(0, true);
      const picture = await createImageBitmap(new Blob([new Uint8Array(event.data, HEAD_BYTES)], { type: "image/jpeg" }));
      this.draw(picture);
      picture.close();
      this.stamp = stamp;
      ages.push(1000 * (serverNow() - stamp));
      if (ages.length > 600) ages.shift();
      if (socket.readyState === WebSocket.OPEN) socket.send("ok");
    };
    socket.onclose = () => setTimeout(() => this.open(), RETRY_MS);
  }

  /** The whole picture with a frame around what the policy sees, or that alone, in its pixels. */
  draw(picture) {
    const [top, left, height, width] = this.seen ? this.seen.part : [0, 0, 1, 1];
    const part = [left * picture.width, top * picture.height, width * picture.width, height * picture.height];
    const seen = this.seen && this.asSeen;
    const [w, h] = seen ? [this.seen.pixels[1], this.seen.pixels[0]] : [picture.width, picture.height];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
    }
    const g = this.canvas.getContext("2d");
    g.filter = seen && this.seen.grey ? "grayscale(1)" : "none";
    if (seen) g.drawImage(picture, ...part, 0, 0, w, h);
    else g.drawImage(picture, 0, 0);
    if (seen || !this.seen || (width === 1 && height === 1)) return;
    g.strokeStyle = "#56b4e9";
    g.lineWidth = Math.max(1, w / 200);
    g.strokeRect(...part);
  }

  /** Age [s], and the badge: what the server saw and why, or stale by our own clock. */
  refresh({ badge: served, why, seen }) {
    this.seen = seen || null;
    this.button.hidden = !seen;
    this.element.dataset.seen = String(Boolean(seen) && this.asSeen);
    if (seen) this.button.textContent = this.asSeen ? `policy's view, ${seen.pixels[1]} × ${seen.pixels[0]}` : "policy's view";
    const age = this.stamp === null ? null : serverNow() - this.stamp;
    let badge = this.stamp === null ? "waiting" : served || "";
    if (age !== null && age > STALE_SECONDS) badge = "stale";
    this.element.dataset.badge = badge;
    this.flagText.textContent = badge;
    this.element.title = why || "";
    this.ageText.textContent = age === null ? why || "no picture yet" : age < 10 ? `${Math.round(1000 * age)} ms` : `${Math.round(age)} s`;
    return age;
  }
}

on("welcome", () => { ages.length = 0; });
