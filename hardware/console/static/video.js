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
    this.element.append(this.canvas, label, this.ageText, this.flagText);
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
      if (this.canvas.width !== picture.width || this.canvas.height !== picture.height) {
        this.canvas.width = picture.width;
        this.canvas.height = picture.height;
      }
      this.canvas.getContext("2d").drawImage(picture, 0, 0);
      picture.close();
      this.stamp = stamp;
      ages.push(1000 * (serverNow() - stamp));
      if (ages.length > 600) ages.shift();
      if (socket.readyState === WebSocket.OPEN) socket.send("ok");
    };
    socket.onclose = () => setTimeout(() => this.open(), RETRY_MS);
  }

  /** Age [s], and the badge: what the server saw and why, or stale by our own clock. */
  refresh(served, why) {
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
