"""Tokens, hosts, rates and the operator's lock, on a logical clock."""

import socket

import pytest

from hardware.console.access import ASK_SECONDS, Doorkeeper, OperatorLock, RateLimit, host_fault
from hardware.console.address import MOST_STRANGERS, bound_socket

HOSTS = frozenset({"127.0.0.1:80"})


class TestDoorkeeper:
    def test_a_token_lets_one_browser_in(self):
        door = Doorkeeper()
        token = door.new_token()
        cookie = door.exchange(token, 0.0)
        assert cookie is not None
        assert door.admits(cookie, 1.0)
        assert door.exchange(token, 2.0) is None
        assert not door.admits(token, 2.0)

    @pytest.mark.parametrize("wrong", ["", "a", "ä", "\udcff"])
    def test_a_wrong_token_or_cookie_lets_nobody_in(self, wrong):
        door = Doorkeeper()
        door.new_token()
        assert door.exchange(wrong, 0.0) is None
        assert not door.admits(wrong, 0.0)

    def test_unused_tokens_end_with_the_eighth_new_one(self):
        door = Doorkeeper()
        first, *_ = [door.new_token() for _ in range(9)]
        assert door.exchange(first, 0.0) is None

    def test_a_page_keeps_its_number_by_its_key_and_takes_the_name_it_says(self):
        door = Doorkeeper()
        page = door.client("", "Ann\n")
        assert door.client(page.key, "") is page
        assert page.label == "Ann (page 1)"
        assert door.client("guessed", "Bob").number == 2


class TestHosts:
    def test_another_host_or_origin_is_refused(self):
        assert host_fault("127.0.0.1:80", None, HOSTS, "http") == ""
        assert host_fault("127.0.0.1:80", "http://127.0.0.1:80", HOSTS, "http") == ""
        assert "host" in host_fault("evil.example", None, HOSTS, "http")
        for origin in ("http://evil.example", "null", "https://127.0.0.1:80", "http://127.0.0.1"):
            assert "refused" in host_fault("127.0.0.1:80", origin, HOSTS, "http")


def test_a_rate_lets_a_burst_pass_and_then_so_many_per_second():
    limit = RateLimit(100.0, 20.0)
    assert sum(limit.allows(0.0) for _ in range(1000)) == 20
    assert limit.dropped == 980
    assert sum(limit.allows(1e-3 * ms) for ms in range(1001)) == pytest.approx(100, abs=1)


class TestLock:
    @pytest.fixture
    def pages(self):
        door = Doorkeeper()
        return door.client("", "Ann"), door.client("", "Bob")

    def test_the_first_holds_it_while_it_is_heard(self, pages):
        ann, bob = pages
        lock = OperatorLock()
        assert lock.acquire(ann, 0.0) == ""
        assert "Ann (page 1) is the operator" in lock.acquire(bob, 1.0)
        lock.hear(ann, 1.9)
        assert lock.holder(3.8) is ann
        assert lock.holder(4.0) is None
        assert lock.acquire(bob, 4.0) == ""

    def test_only_the_holder_renews_or_releases_it(self, pages):
        ann, bob = pages
        lock = OperatorLock()
        lock.acquire(ann, 0.0)
        lock.hear(bob, 1.5)
        lock.release(bob, 1.5)
        assert lock.holder(1.9) is ann
        assert lock.holder(2.1) is None

    def test_a_wish_is_granted_or_denied_by_the_holder(self, pages):
        ann, bob = pages
        lock = OperatorLock()
        lock.acquire(ann, 0.0)
        assert lock.ask(bob, 0.5) == ""
        assert lock.asker(0.6) is bob
        assert lock.holder(0.6) is ann
        assert "only the operator" in lock.respond(bob, True, 0.7)
        assert lock.respond(ann, False, 0.8) == ""
        assert lock.asker(0.9) is None
        lock.ask(bob, 1.0)
        assert lock.respond(ann, True, 1.1) == ""
        assert lock.holder(1.2) is bob

    def test_a_wish_that_nobody_answers_is_granted_unless_the_holder_drives(self, pages):
        ann, bob = pages
        lock = OperatorLock()
        lock.acquire(ann, 0.0)
        lock.ask(bob, 0.0)
        now = 0.0
        while now < ASK_SECONDS + 5:  # Ann drives
            now += 0.05
            lock.hear(ann, now)
            lock.postpone(now)
        assert lock.holder(now) is ann
        end = now + ASK_SECONDS
        while now < end - 0.1:  # Ann looks on
            now += 0.05
            lock.hear(ann, now)
            assert lock.holder(now) is ann
        assert lock.holder(end + 0.01) is bob

    def test_a_wish_of_a_page_that_was_closed_is_granted_to_nobody(self, pages):
        ann, bob = pages
        lock = OperatorLock()
        lock.acquire(ann, 0.0)
        lock.ask(bob, 0.0)
        lock.withdraw(ann)  # who does not ask
        assert lock.asker(0.1) is bob
        lock.withdraw(bob)
        now = 0.0
        while now < ASK_SECONDS + 1:
            now += 0.5
            lock.hear(ann, now)
        assert lock.holder(now) is ann

    def test_every_change_is_told(self, pages):
        ann, _ = pages
        told = []
        lock = OperatorLock(told.append)
        lock.acquire(ann, 0.0)
        lock.acquire(ann, 0.1)
        lock.holder(5.0)
        assert told == [ann, None]


def test_the_oldest_connections_of_strangers_give_way_to_new_ones():
    with bound_socket("127.0.0.1", 0) as listener:
        listener.listen(200)
        ends = []
        for k in range(3 + MOST_STRANGERS):
            ends.append((socket.create_connection(listener.getsockname()), listener.accept()[0]))
            if k == 0:
                listener.let_in(ends[0][1].fileno())
        for browser, _ in ends:
            browser.setblocking(False)
        for browser, _ in ends[1:3]:
            assert browser.recv(1) == b"", "closed"
        for browser, _ in (ends[0], *ends[3:]):
            with pytest.raises(BlockingIOError):
                browser.recv(1)
        for pair in ends:
            for one in pair:
                one.close()
