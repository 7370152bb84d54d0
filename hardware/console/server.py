"""Web server of the console: pages, commands, one socket for state and stick, one per camera.

    GET  /  /review               the pages          POST /api/command     a command, its reply
    GET  /api/state               the snapshot       POST /api/invite      another browser's address
    GET  /api/episodes[/...]      for the review     GET  /healthz         alive, without a cookie
    WS   /ws                      state out at 20 Hz; commands and stick in
    WS   /ws/video/<name>         a JPEG per acknowledgement

Everything but /healthz needs the cookie that a printed address was exchanged for. Host and Origin
are checked on every request. The server listens on this computer only, unless it has TLS.
"""

import asyncio
import contextlib
import ipaddress
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from hardware.console.access import Client, Doorkeeper, RateLimit, host_fault
from hardware.console.address import bound_socket
from hardware.console.operation import Console, Reply
from hardware.console.timeline import EpisodeReader
from hardware.console.video import VideoStream
from robot_rl.core.errors import ConfigError, MissingExtraError

try:
    from aiohttp import web
except ImportError:
    raise MissingExtraError("aiohttp", "ui", "the console") from None

from hardware.console.page_socket import (  # needs aiohttp
    STOP_BURST,
    STOP_RATE,
    PageSocket,
    json_text,
    object_of,
    send_frames,
)

_logger = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"
_PAGES = {"/": "index.html", "/review": "review.html"}
COOKIE = "robot_rl_console"
"""First part of the cookie's name; the port follows: browsers send a host's cookies to all ports.
"""
LONGEST_MESSAGE = 16 * 1024
"""Bytes of a request's body or of a message of a socket."""
_TICK_SECONDS = 0.02
_VIDEO_SECONDS = 1 / 30
_POST_RATE, _POST_BURST = 50.0, 50.0
_POLICY = (
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SOMEBODY = Client("", 0, "somebody")
"""Operator of a stop that comes without an open page."""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(kw_only=True)
class ServerConfig:
    """Address of the console."""

    host: str = "127.0.0.1"
    """Address to listen on; one that other computers reach needs `certificate`."""
    port: int = 8765
    """0 for any free one."""
    certificate: Path | None = None
    """PEM file of the certificate."""
    key: Path | None = None
    """PEM file of its key."""

    def __post_init__(self) -> None:
        if not is_loopback(self.host):
            if self.host in ("0.0.0.0", "::", ""):
                raise ConfigError(
                    f"host '{self.host}' listens everywhere; name the one address that browsers use"
                )
            if self.certificate is None or self.key is None:
                raise ConfigError(
                    f"host {self.host} is reached from other computers: that needs a certificate"
                )


def is_loopback(host: str) -> bool:
    """True for an address that only this computer reaches."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class ConsoleServer:
    """The console on an address, in one event loop."""

    def __init__(
        self, console: Console, config: ServerConfig, *, reader: EpisodeReader | None = None,
        on_token: Callable[[str], None] = lambda url: None,
    ) -> None:  # fmt: skip
        """Prepare; `start` listens.

        Args:
            reader: Recorded episodes for the review page.
            on_token: Is told the address for the next browser, whenever the last one is used up.
        """
        self.console, self._config, self._reader = console, config, reader
        self._on_token = on_token
        self._door = Doorkeeper()
        # Of all commands and, beyond it, of stops; by cookie.
        self._post_limits: dict[str, tuple[RateLimit, RateLimit]] = {}
        self._hosts: frozenset[str] = frozenset()
        self._let_in: Callable[[int], None] = lambda number: None
        self._tasks: list[asyncio.Task[None]] = []
        self._open: set[web.WebSocketResponse] = set()
        self._runner: web.AppRunner | None = None
        self.port = config.port
        """Of the open socket."""

    @property
    def scheme(self) -> str:
        """Either http or https."""
        return "http" if self._config.certificate is None else "https"

    @property
    def _cookie(self) -> str:
        return f"{COOKIE}_{self.port}"

    @property
    def base_url(self) -> str:
        """Address without a token."""
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        return f"{self.scheme}://{host}:{self.port}"

    def new_url(self) -> str:
        """Address that one browser may open."""
        return f"{self.base_url}/?token={self._door.new_token()}"

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: The address cannot be had.
        """
        app = web.Application(
            client_max_size=LONGEST_MESSAGE, middlewares=[self._headers, self._guard]
        )
        app.router.add_get("/healthz", self._healthz)
        for path in _PAGES:
            app.router.add_get(path, self._page)
        app.router.add_get("/static/{name}", self._static)
        app.router.add_get("/api/state", self._state)
        app.router.add_post("/api/command", self._command)
        app.router.add_post("/api/invite", self._invite)
        app.router.add_get("/api/episodes", self._episodes)
        app.router.add_get("/api/episodes/{name}", self._episode)
        app.router.add_get("/api/episodes/{name}/{index}.jpg", self._picture)
        app.router.add_get("/ws", self._socket)
        app.router.add_get("/ws/video/{name}", self._video)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        bound = bound_socket(self._config.host, self._config.port)
        self.port, self._let_in = bound.getsockname()[1], bound.let_in
        host = self._config.host
        names = {f"[{host}]" if ":" in host else host}  # as browsers write it
        if is_loopback(self._config.host):
            names |= {"127.0.0.1", "localhost", "[::1]"}
        self._hosts = frozenset(f"{name.lower()}:{self.port}" for name in names)
        if self.port == (443 if self.scheme == "https" else 80):
            self._hosts |= {name.lower() for name in names}
        await web.SockSite(self._runner, bound, ssl_context=self._tls()).start()
        self._tasks = [asyncio.create_task(self._tick_for_ever())]
        self._tasks += [
            asyncio.create_task(self._pump(stream)) for stream in self.console.streams.values()
        ]

    async def stop(self) -> None:
        """Close every socket and stop listening."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.drop_sockets()
        if self._runner is not None:
            await self._runner.cleanup()
        self.console.close()

    async def drop_sockets(self) -> None:
        """Close every socket; pages that still can open new ones."""
        for one in list(self._open):
            await one.close(code=1001, message=b"the console ends")

    # Background

    async def _tick_for_ever(self) -> None:
        while True:
            try:
                self.console.tick()
            except Exception:  # the dead-man must be looked after whatever fails beside it
                _logger.exception("a tick of the console failed")
            await asyncio.sleep(_TICK_SECONDS)

    async def _pump(self, stream: VideoStream) -> None:
        """Encode what a camera gives, in another thread."""
        while True:
            try:
                await asyncio.to_thread(stream.newest)
            except Exception:  # one picture that is none; the next may be good
                _logger.exception("a picture of '%s' cannot be shown", stream.name)
                await asyncio.sleep(1.0)
            await asyncio.sleep(_VIDEO_SECONDS)

    # Guards

    @web.middleware
    async def _headers(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(_HEADERS)
            raise
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if reason := host_fault(request.headers.get("Host", ""), origin, self._hosts, self.scheme):
            raise web.HTTPForbidden(text=reason)
        changes = request.method != "GET" or "Upgrade" in request.headers
        if changes and origin is None:
            raise web.HTTPForbidden(text="this request must say its Origin")
        if request.path == "/healthz" or (request.path == "/" and "token" in request.query):
            return await handler(request)
        if not self._door.admits(request.cookies.get(self._cookie, ""), self.console.clock()):
            raise web.HTTPUnauthorized(
                text="Open the address that the console printed: it holds a token for one browser. "
                "Was it used before? The console has printed the next one."
            )
        if request.transport is not None:
            self._let_in(request.transport.get_extra_info("socket").fileno())
        return await handler(request)

    def _client_of(self, request: web.Request, otherwise: Client | None = None) -> Client:
        client = self._door.known(request.headers.get("X-Console-Client", "")) or otherwise
        if client is None:
            raise web.HTTPForbidden(text="the header X-Console-Client must name an open page")
        return client

    # Pages

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"ok": True, "robot": self.console.view.alive})

    async def _page(self, request: web.Request) -> web.StreamResponse:
        token = request.query.get("token")
        if token is not None:
            cookie = self._door.exchange(token, self.console.clock())
            if cookie is None:
                if self._door.admits(request.cookies.get(self._cookie, ""), self.console.clock()):
                    raise web.HTTPSeeOther("/")  # the same browser again
                raise web.HTTPUnauthorized(
                    text="This token is wrong, or a browser has used it. "
                    "The console has printed the next address."
                )
            self._on_token(self.new_url())
            response = web.HTTPSeeOther("/")
            response.set_cookie(
                self._cookie, cookie, httponly=True, samesite="Strict", path="/",
                secure=self.scheme == "https",
            )  # fmt: skip
            raise response
        return web.FileResponse(_STATIC / _PAGES[request.path])

    async def _static(self, request: web.Request) -> web.StreamResponse:
        path = _STATIC / request.match_info["name"]
        if path.parent != _STATIC or path.suffix not in (".js", ".css", ".svg"):
            raise web.HTTPNotFound
        if not path.is_file():
            raise web.HTTPNotFound
        return web.FileResponse(path)

    async def _state(self, request: web.Request) -> web.Response:
        return web.json_response(self.console.snapshot(), dumps=json_text)

    async def _invite(self, request: web.Request) -> web.Response:
        client = self._client_of(request)
        self.console.log.write(client.label, "invite")
        return web.json_response({"url": self.new_url()})

    async def _command(self, request: web.Request) -> web.Response:
        now = self.console.clock()
        limit, stops = self._post_limits.setdefault(
            request.cookies[self._cookie],
            (RateLimit(_POST_RATE, _POST_BURST), RateLimit(STOP_RATE, STOP_BURST)),
        )
        within = limit.allows(now)
        try:
            message = object_of(await request.text())  # 413 by itself where it is too long
        except (UnicodeError, LookupError):  # another alphabet than it says, or none
            message = None
        if message is None:
            raise web.HTTPBadRequest(text="a command is a JSON object")
        if not within and not (message.get("do") == "stop" and stops.allows(now)):
            raise web.HTTPTooManyRequests(text=f"more than {_POST_RATE:.0f} commands per second")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        client = _SOMEBODY if message.get("do") == "stop" else None
        self.console.command(
            self._client_of(request, client), message,
            lambda reply: None if future.done() else future.set_result(reply),
        )  # fmt: skip
        reply = await future
        return web.json_response(reply.as_json, status=reply.code)

    # Review

    async def _episodes(self, request: web.Request) -> web.Response:
        episodes = await asyncio.to_thread(self._reader.episodes) if self._reader else []
        return web.json_response({"episodes": episodes, "reader": self._reader is not None})

    async def _episode(self, request: web.Request) -> web.Response:
        try:
            found = self._found_reader().timeline(request.match_info["name"])
            return web.json_response(found, dumps=json_text)
        except ConfigError as error:
            raise web.HTTPNotFound(text=str(error)) from None

    async def _picture(self, request: web.Request) -> web.Response:
        index = request.match_info["index"]
        found = (
            self._found_reader().picture(request.match_info["name"], int(index))
            if index.isdecimal()
            else None
        )
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found, content_type="image/jpeg")

    def _found_reader(self) -> EpisodeReader:
        if self._reader is None:
            raise web.HTTPNotFound(text="this console has no folder with episodes")
        return self._reader

    # Sockets

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(max_msg_size=LONGEST_MESSAGE, heartbeat=5.0, compress=False)
        await ws.prepare(request)
        self._open.add(ws)
        page = PageSocket(self.console, self._door, ws)
        try:
            await page.serve()
        finally:
            self._open.discard(ws)
        return ws

    async def _video(self, request: web.Request) -> web.WebSocketResponse:
        stream = self.console.streams.get(request.match_info["name"])
        if stream is None:
            raise web.HTTPNotFound(text="there is no such camera")
        ws = web.WebSocketResponse(max_msg_size=1024, heartbeat=5.0, compress=False)
        await ws.prepare(request)
        self._open.add(ws)
        try:
            await send_frames(ws, stream)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self._open.discard(ws)
        return ws

    # Opening

    def _tls(self) -> ssl.SSLContext | None:
        if self._config.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._config.certificate, self._config.key)
        return context
