"""gRPC beneath the link: calls of bytes with deadlines, keep-alive, TLS and a token.

Handlers are generic (method names and bytes), so that there is no generated code. Without TLS and a
token only loopback addresses are served and called.
"""

import hmac
import ipaddress
import logging
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_rl.core.errors import ConfigError, MissingExtraError, RobotRLError, StorageError
from robot_rl.link.messages import LARGEST_MESSAGE, MessageError

try:
    import grpc
except ImportError:
    raise MissingExtraError("grpcio", "link", "the link of robots and learner") from None

_logger = logging.getLogger(__name__)
SERVICE = "robot_rl.Link"
_THREADS, _MOST_CALLS = 16, 64
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),  # not even 127.0.0.1 is kept from one by itself
    ("grpc.so_reuseport", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_LAST_PORT = 65535
_RETRIED = (
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN,
)  # fmt: skip
"""Answers after which the same call may succeed later."""
_NOBODY = "Connection refused"
"""Words of the system for a computer that can be reached and a port without a program."""


class LinkDownError(RobotRLError):
    """The other side cannot be reached now; the same call may succeed later."""


class LinkRefusedError(RobotRLError):
    """The other side refused, and will refuse the same call again."""


@dataclass(frozen=True, kw_only=True)
class Security:
    """Secrets of a link; none are needed on loopback addresses."""

    token: str = ""
    """Word that both sides know."""
    certificate: str = ""
    """File with the learner's certificate (PEM); robots trust this one, or its authority."""
    key: str = ""
    """File with its private key (PEM); the learner's side only."""

    def check_address(self, address: str, *, serves: bool) -> None:
        """Refuse what is no address, and one that others can reach without TLS and a token.

        Raises:
            ConfigError: Says what is missing, or which file cannot be read.
        """
        name, _, port = address.rpartition(":")
        if not (name and port.isdecimal() and int(port) <= _LAST_PORT):
            raise ConfigError(
                f"'{address}' is no address of a learner: expected host:port with a port from 0 "
                f"to {_LAST_PORT}, such as 127.0.0.1:50151"
            )
        if self.key and not self.certificate:
            raise ConfigError(
                f"key={self.key} came without its certificate: give certificate=, too, or neither "
                "at an address of this computer"
            )
        host = name.strip("[]")
        if _is_loopback(host) and not self.certificate:
            return
        if serves and self.certificate and not self.key and _is_loopback(host):
            raise ConfigError(
                f"certificate={self.certificate} came without its private key: a learner needs "
                "key=, too, or neither at an address of this computer"
            )
        missing = [
            name
            for name, value in (
                ("a token", self.token), ("a certificate", self.certificate),
                *((("a key", self.key),) if serves else ()),
            )
            if not value
        ]  # fmt: skip
        if missing and not (_is_loopback(host) and missing == ["a token"]):
            raise ConfigError(
                f"the address {address} can be reached by others: the link needs TLS and a token "
                f"there; missing: {', '.join(missing)} (token_file=, certificate=, key=); or take "
                "an address of this computer, such as 127.0.0.1:50151"
            )
        _check_pair(self.certificate, self.key if serves else "")


def _check_pair(certificate: str, key: str) -> None:
    """Refuse files of TLS that cannot be used, before anything is begun with them."""
    for path in filter(None, (certificate, key)):
        _read(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(certificate)
    except ssl.SSLError as error:
        raise ConfigError(
            f"certificate={certificate} holds no certificate in PEM ({error.reason or error})"
        ) from None
    try:
        if key:
            context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        raise ConfigError(
            f"key={key} cannot be used with certificate={certificate} "
            f"({error.reason or error}): expected its private key in PEM, without a passphrase"
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Server:
    """Serves calls of bytes until `stop`."""

    def __init__(
        self, address: str, security: Security,
        calls: Mapping[str, Callable[[bytes], bytes]],
    ) -> None:  # fmt: skip
        """Listen.

        Args:
            address: `host:port`; port 0 takes a free one.
            calls: From a message to its answer, by name.

        Raises:
            ConfigError: The address is taken or not allowed.
        """
        security.check_address(address, serves=True)
        self._token = security.token
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._guarded(call))
                    for name, call in calls.items()}  # fmt: skip
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, "link"), options=_OPTIONS,
            maximum_concurrent_rpcs=_MOST_CALLS,
        )  # fmt: skip
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        try:
            if security.certificate:
                pair = (_read(security.key), _read(security.certificate))
                self.port = self._server.add_secure_port(
                    address, grpc.ssl_server_credentials([pair])
                )
            else:
                self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            pair = ", or can gRPC not use this certificate and key" if security.certificate else ""
            raise ConfigError(
                f"cannot listen at {address}: {error}; is another learner running there{pair}?"
            ) from None
        self._server.start()

    def stop(self) -> None:
        """End all calls and stop listening."""
        self._server.stop(grace=0.2).wait(5)

    def _guarded(self, call: Callable[[bytes], bytes]) -> Callable[[bytes, Any], bytes]:
        def answer(message: bytes, context: Any) -> bytes:
            with _Refusals(context, self._token):
                return call(message)
            return b""

        return answer


class _Refusals:
    """Checks the token, and turns errors of a handler into answers that say why."""

    def __init__(self, context: Any, token: str) -> None:
        self._context, self._token = context, token

    def __enter__(self) -> None:
        if not self._token:
            return
        given = dict(self._context.invocation_metadata()).get("authorization", "")
        if not hmac.compare_digest(str(given).encode(), f"Bearer {self._token}".encode()):
            self._context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "the token is missing or wrong; both sides need the same token_file=",
            )

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or not isinstance(error, Exception) or not isinstance(error, RobotRLError):
            return
        code = grpc.StatusCode.FAILED_PRECONDITION
        if isinstance(error, MessageError):
            code = grpc.StatusCode.INVALID_ARGUMENT
        elif isinstance(error, StorageError):
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        _logger.warning("the link refused a call: %s", error)
        self._context.abort(code, str(error))


class Channel:
    """Calls of bytes to a server, each with a deadline. Thread-safe."""

    def __init__(self, address: str, security: Security) -> None:
        """Prepare; nothing is sent before the first call.

        Raises:
            ConfigError: The address is not allowed without TLS and a token.
        """
        security.check_address(address, serves=False)
        self._address = address
        if security.certificate:
            trust = grpc.ssl_channel_credentials(root_certificates=_read(security.certificate))
            self._channel = grpc.secure_channel(address, trust, options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._metadata: Any = None
        if security.token:
            self._metadata = (("authorization", f"Bearer {security.token}"),)

    def call(self, method: str, message: bytes, timeout: float) -> bytes:
        """Answer to a message.

        Args:
            timeout: Longest wait for it [s].

        Raises:
            LinkDownError: There was none in time.
            LinkRefusedError: The server refused.
        """
        try:
            ask = self._channel.unary_unary(f"/{SERVICE}/{method}")
            return ask(message, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._error(error) from None

    def close(self) -> None:
        """End all calls."""
        self._channel.close()

    def _error(self, error: Any) -> RobotRLError:
        detail = error.details()
        if error.code() is grpc.StatusCode.UNAVAILABLE and _NOBODY in detail:
            detail = "nothing listens there (yet)"
        said = f"learner at {self._address}: {detail}"
        return LinkDownError(said) if error.code() in _RETRIED else LinkRefusedError(said)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
