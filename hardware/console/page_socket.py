"""Sockets of the console: a page's state, commands and stick, and the pictures of a camera."""

import asyncio
import contextlib
import json
import math
import struct
from typing import Any

from aiohttp import WSMsgType, web

from hardware.console.access import Client, Doorkeeper, RateLimit
from hardware.console.operation import Console
from hardware.console.stick import StickStream
from hardware.console.video import VideoStream
from robot_rl.core.errors import ConfigError

_STATE_SECONDS, _FRAME_SECONDS = 0.05, 0.01
_ACK_SECONDS = 5.0
_MOST_WAITING = 64
"""Replies that may wait for a page."""
_UNREAD_BYTES = 16 * 1024
"""Bytes that a page may leave unread before states are left out: two or three of them."""
STOP_RATE, STOP_BURST = 20.0, 20.0
"""Stops that count beside other messages; more of them say the same."""
_LONGEST_NUMBER = 30
"""Digits of a whole number."""
_SOCKET_RATE, _SOCKET_BURST = 120.0, 120.0
_FRAME_HEAD = struct.Struct("<dI")
"""Time [s] and number of a picture, before its JPEG."""


class PageSocket:
    """A page's socket: what it says, what it is told."""

    def __init__(self, console: Console, door: Doorkeeper, ws: web.WebSocketResponse) -> None:
        """Talk to a page whose socket is open."""
        self._console, self._door, self._ws = console, door, ws
        self._limit = RateLimit(_SOCKET_RATE, _SOCKET_BURST)
        self._stops = RateLimit(STOP_RATE, STOP_BURST)
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)
        self._client: Client | None = None
        self._stream: StickStream | None = None
        self._connection = ""
        self._told_limit = 0.0

    async def serve(self) -> None:
        """Talk until the socket closes."""
        sender: asyncio.Task[None] | None = None
        try:
            async for message in self._ws:
                if message.type is not WSMsgType.TEXT:
                    self._fault(400, "messages are texts")
                    continue
                self._take(message.data)
                if sender is None and self._client is not None:
                    sender = asyncio.create_task(self._send_for_ever())
        finally:
            if self._client is not None and self._client.connection == self._connection:
                self._console.leave(self._client)
            if sender is not None:
                sender.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await sender

    def _take(self, text: str) -> None:
        now = self._console.clock()
        allowed = self._limit.allows(now)
        message = object_of(text) if allowed or '"stop"' in text else None
        stops = message is not None and message.get("do") == "stop"
        if not allowed and not (stops and self._stops.allows(now)):
            if now - self._told_limit > 1.0:
                self._told_limit = now
                self._fault(429, f"more than {_SOCKET_RATE:.0f} messages per second: "
                            f"{self._limit.dropped} were dropped")  # fmt: skip
            return
        if message is None:
            self._fault(400, "a message is a JSON object")
            return
        kind = message.get("type")
        if kind == "hello":
            self._hello(message, now)
        elif self._client is None or self._stream is None:
            self._fault(400, "say hello first")
        elif kind == "ping":
            if self._waiting.qsize() < _MOST_WAITING // 2:  # replies come first
                self._tell({"type": "pong", "c": message.get("c"), "now": now})
        elif kind == "command":
            self._console.command(self._client, message, lambda end: self._tell(end.as_json))
        elif kind == "release":
            self._console.release(self._client, str(message.get("why", ""))[:80])
        elif kind == "stick":
            self._stick(self._client, self._stream, message)
        else:
            self._fault(400, f"'{str(kind)[:40]}' is no message of a page")

    def _hello(self, message: dict[str, Any], now: float) -> None:
        name = message.get("name")
        self._client = self._door.client(
            str(message.get("key", "")), name if isinstance(name, str) else ""
        )
        connection = f"{self._client.number}-{now:.6f}"
        self._connection = self._client.connection = connection
        self._stream = StickStream(connection)
        self._tell({
            "type": "welcome", "key": self._client.key, "number": self._client.number,
            "name": self._client.name, "connection": connection, "now": now,
            "history": self._console.history,
        })  # fmt: skip

    def _stick(self, client: Client, stream: StickStream, message: dict[str, Any]) -> None:
        try:
            copied = client.connection != self._connection
            fault = (
                "another tab goes on for this one"
                if copied
                else self._console.stick(client, stream, message)
            )
        except ConfigError as error:
            self._fault(400, str(error))
            return
        if fault:
            self._tell({"type": "dropped", "seq": message.get("seq"), "why": fault})

    def _fault(self, code: int, why: str) -> None:
        self._tell({"type": "error", "code": code, "why": why})

    def _tell(self, message: dict[str, Any]) -> None:
        """Send as soon as there is room; a page that reads nothing misses it."""
        with contextlib.suppress(asyncio.QueueFull):
            self._waiting.put_nowait(message)

    async def _send_for_ever(self) -> None:
        clock = self._console.clock
        next_state = clock()
        while not self._ws.closed:
            try:
                wait = max(0.0, next_state - clock())
                reply = self._waiting.get_nowait() if self._waiting.qsize() else None
                message = reply or await asyncio.wait_for(self._waiting.get(), wait)
            except TimeoutError:
                next_state = max(next_state + _STATE_SECONDS, clock())
                message = self._console.snapshot()
                transport = self._ws.get_extra_info("transport")
                if transport is not None and transport.get_write_buffer_size() > _UNREAD_BYTES:
                    continue
            await self._ws.send_str(json_text(message))


async def send_frames(ws: web.WebSocketResponse, stream: VideoStream) -> None:
    """One picture under way at a time: a slow page gets fewer, never older ones."""
    sent = 0
    while not ws.closed:
        frame = stream.frame
        if frame is None or frame.number == sent:
            await asyncio.sleep(_FRAME_SECONDS)
            continue
        sent = frame.number
        await ws.send_bytes(_FRAME_HEAD.pack(frame.stamp, frame.number) + frame.jpeg)
        answer = await ws.receive(timeout=_ACK_SECONDS)
        if answer.type is not WSMsgType.TEXT:
            return


def json_text(message: Any) -> str:
    """JSON of a message; numbers that JSON does not know (NaN, infinities) become null."""
    try:
        return json.dumps(message, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(message), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole_number(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:  # which no float holds, or takes minutes to read
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def object_of(text: str) -> dict[str, Any] | None:
    """The JSON object of a text; None where it is none."""
    try:
        message = json.loads(text, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
