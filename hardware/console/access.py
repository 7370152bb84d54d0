"""Rights of those who open the console: tokens, cookies, hosts, rates, and the one operator.

Everybody with a cookie may look, stop and hold. One of them is the operator, who may do the rest;
the lock of the operator runs out where the page is not heard for two seconds. Another one may ask
for it. Time is an argument, so that every duration is tested on a logical clock.
"""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

LOCK_SECONDS = 2.0
"""Silence of the operator's page after which somebody else may become operator [s]."""
ASK_SECONDS = 10.0
"""Time that the operator has to answer somebody who asks for the lock [s]."""
_MOST_SESSIONS = 32
_MOST_TOKENS = 8
_MOST_PAGES = 256
LONGEST_NAME = 24


@dataclass
class Client:
    """One open page: a browser may have several."""

    key: str
    """Secret of the page, by which it is the same one after a reload."""
    number: int
    """Public number."""
    name: str
    """Name of the person, for the log."""
    connection: str = ""
    """Its newest socket: of a tab that was duplicated, both copies have the key."""

    @property
    def label(self) -> str:
        """Name and number."""
        return f"{self.name} (page {self.number})"


class Doorkeeper:
    """Tokens of printed addresses, each good for one browser, and the cookies they became."""

    def __init__(self) -> None:
        self._tokens: list[str] = []
        self._cookies: dict[str, float] = {}
        self._clients: dict[str, Client] = {}
        self._pages = 0

    def new_token(self) -> str:
        """A token of 256 bits that one browser may use; the oldest unused ones end."""
        self._tokens = [*self._tokens[1 - _MOST_TOKENS :], secrets.token_urlsafe(32)]
        return self._tokens[-1]

    def exchange(self, token: str, now: float) -> str | None:
        """Cookie for a token, which is used up by it; None for a wrong one."""
        given = token.encode(errors="replace")
        # All are compared, so that the time tells nothing.
        found = [one for one in self._tokens if hmac.compare_digest(one.encode(), given)]
        if not found:
            return None
        self._tokens.remove(found[0])
        cookie = secrets.token_urlsafe(32)
        self._cookies[cookie] = now
        while len(self._cookies) > _MOST_SESSIONS:
            self._cookies.pop(min(self._cookies, key=lambda one: self._cookies[one]))
        return cookie

    def admits(self, cookie: str, now: float) -> bool:
        """True for a cookie that was given out."""
        given = cookie.encode(errors="replace")
        found = [one for one in self._cookies if hmac.compare_digest(one.encode(), given)]
        for one in found:
            self._cookies[one] = now
        return bool(found)

    def client(self, key: str, name: str) -> Client:
        """Page of a key, or a new one where the key is unknown; takes the person's name."""
        client = self._clients.get(key)
        if client is None:
            key = secrets.token_urlsafe(16)
            self._pages += 1
            client = self._clients[key] = Client(key, self._pages, "somebody")
            if len(self._clients) > _MOST_PAGES:
                self._clients.pop(next(iter(self._clients)))
        if shown := "".join(c for c in name if c.isprintable()).strip()[:LONGEST_NAME]:
            client.name = shown
        return client

    def known(self, key: str) -> Client | None:
        """Page of a key that was given out."""
        return self._clients.get(key)


def host_fault(host: str, origin: str | None, allowed: frozenset[str], scheme: str) -> str:
    """Reason to refuse a request by where it claims to come from; empty where there is none.

    A page of another site can send requests with our cookie's browser, and its name can be made to
    lead here (DNS rebinding): so both headers must name this server.

    Args:
        host: Header `Host`.
        origin: Header `Origin`; None where the browser sent none, which is no fault of a GET.
        allowed: Names of this server, with its port.
    """
    if host.lower() not in allowed:
        return f"this console does not answer to the host '{host[:80]}'"
    if origin is not None and origin.lower() not in {f"{scheme}://{name}" for name in allowed}:
        return f"requests from '{origin[:80]}' are refused"
    return ""


@dataclass
class RateLimit:
    """Messages per time: a bucket that fills at a rate."""

    rate: float
    """Messages per second that may come for ever."""
    burst: float
    """Messages that may come at once."""
    _level: float = field(init=False, default=0.0)
    _since: float | None = field(init=False, default=None)
    dropped: int = field(init=False, default=0)
    """Messages over the limit so far."""

    def allows(self, now: float) -> bool:
        """Count a message; False where it is one too many."""
        if self._since is None:
            self._level = self.burst
        else:
            self._level = min(self.burst, self._level + self.rate * max(0.0, now - self._since))
        self._since = now
        if self._level < 1.0:
            self.dropped += 1
            return False
        self._level -= 1.0
        return True


class OperatorLock:
    """The one client who may command, as long as it is heard."""

    def __init__(self, on_change: Callable[[Client | None], None] = lambda holder: None) -> None:
        """Begin without an operator; `on_change` is told every new one, or None."""
        self._on_change = on_change
        self._holder: Client | None = None
        self._heard = 0.0
        self._asker: Client | None = None
        self._asked = 0.0

    def holder(self, now: float) -> Client | None:
        """The operator; None where the lease has run out. An unanswered wish is granted here."""
        if self._holder is not None and now - self._heard > LOCK_SECONDS:
            self._give(None, now)
        asker = self.asker(now)
        if asker and (self._holder is None or now - self._asked >= ASK_SECONDS):
            self._give(asker, now)
        return self._holder

    def asker(self, now: float) -> Client | None:
        """Client who asks for the lock."""
        if self._asker is not None and now - self._asked > ASK_SECONDS + LOCK_SECONDS:
            self._asker = None
        return self._asker

    def seconds_left(self, now: float) -> float:
        """Rest of the lease [s]."""
        return max(0.0, LOCK_SECONDS - (now - self._heard)) if self._holder else 0.0

    def ask_left(self, now: float) -> float:
        """Time until an unanswered wish is granted [s]."""
        return max(0.0, ASK_SECONDS - (now - self._asked)) if self._asker else 0.0

    def hear(self, client: Client, now: float) -> None:
        """Renew the lease, if this client has it."""
        if self.holder(now) is client:
            self._heard = now

    def acquire(self, client: Client, now: float) -> str:
        """Become operator; returns the reason of a refusal, empty where there is none."""
        holder = self.holder(now)
        if holder is not None and holder is not client:
            return f"{holder.label} is the operator; ask for it, or wait until it is given back"
        self._give(client, now)
        return ""

    def ask(self, client: Client, now: float) -> str:
        """Ask the operator for the lock; returns the reason of a refusal."""
        holder = self.holder(now)
        if holder is None or holder is client:
            return self.acquire(client, now)
        if self.asker(now) not in (None, client):
            return f"{self._asker.label if self._asker else ''} has asked before"
        if self._asker is None:
            self._asker, self._asked = client, now
        return ""

    def respond(self, client: Client, grant: bool, now: float) -> str:
        """Operator's answer to who asks; returns the reason of a refusal."""
        if self.holder(now) is not client:
            return "only the operator can answer this"
        asker = self.asker(now)
        if asker is None:
            return "nobody asks any more"
        if grant:
            self._give(asker, now)
        self._asker = None
        return ""

    def withdraw(self, client: Client) -> None:
        """Forget that a client asks: its page is gone."""
        if self._asker is client:
            self._asker = None

    def postpone(self, now: float) -> None:
        """Start the wait of who asks again: the operator is driving right now."""
        if self._asker is not None:
            self._asked = now

    def release(self, client: Client, now: float) -> None:
        """Give the lock back, if this client has it."""
        if self.holder(now) is client:
            self._give(None, now)

    def _give(self, client: Client | None, now: float) -> None:
        changed = client is not self._holder
        self._holder, self._heard = client, now
        if client is self._asker:
            self._asker = None
        if changed:
            self._on_change(client)
