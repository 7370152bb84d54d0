"""The web server against a real robot process: rights, limits, commands, the stick, pictures."""

import asyncio
import contextlib
import json
import ssl
import struct
import time
import uuid

import aiohttp
import pytest

from hardware.console.address import MOST_STRANGERS
from hardware.console.certificate import ensure_certificate, fingerprint
from hardware.console.server import LONGEST_MESSAGE, ServerConfig
from hardware.control.safety import Condition, SafetyState
from robot_rl.core.errors import ConfigError
from tests.hardware.console.running import RunningConsole, new_name, wait_for

pytestmark = pytest.mark.slow  # the robot is a process, and keeps its times
S = SafetyState


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30))


class Browser:
    """A browser: keeps the cookie, and opens pages."""

    def __init__(self, stage):
        self.stage = stage
        jar = aiohttp.CookieJar(unsafe=True)  # an address of numbers has cookies too
        few = aiohttp.TCPConnector(limit=6)  # to one server, as browsers have
        self.http = aiohttp.ClientSession(cookie_jar=jar, connector=few)
        self.origin = stage.base

    async def __aenter__(self):
        await self.http.get(self.stage.new_url())
        return self

    async def __aexit__(self, *_):
        await self.http.close()

    async def post(self, path, body, **headers):
        data = body if isinstance(body, str | bytes) else json.dumps(body)
        headers = {"Origin": self.origin, **headers}
        async with self.http.post(self.stage.base + path, data=data, headers=headers) as reply:
            return reply.status, await reply.text()

    async def page(self, name="Ann", key=""):
        ws = await self.http.ws_connect(
            self.stage.base.replace("http", "ws") + "/ws", headers={"Origin": self.origin}
        )
        page = Page(ws)
        await ws.send_json({"type": "hello", "name": name, "key": key})
        page.welcome = await page.next("welcome")
        return page


class Page:
    """An open page."""

    def __init__(self, ws):
        self.ws = ws
        self.welcome = {}
        self.sequence = 0

    async def next(self, kind, seconds=5.0):
        """The next message of a kind."""
        async with asyncio.timeout(seconds):
            while True:
                message = await self.ws.receive()
                assert message.type is aiohttp.WSMsgType.TEXT, message
                found = json.loads(message.data)
                if found["type"] == kind:
                    return found

    async def do(self, verb, **arguments):
        """Command and its reply."""
        key = arguments.pop("id", uuid.uuid4().hex)
        await self.ws.send_json({"type": "command", "id": key, "do": verb, **arguments})
        while (reply := await self.next("reply"))["id"] != key:
            pass
        return reply

    async def state(self, wanted=lambda state: True, seconds=10.0):
        """The first state of after this call that is wanted."""
        called = time.monotonic()
        async with asyncio.timeout(seconds):
            while (state := await self.next("state"))["now"] < called or not wanted(state):
                pass
        return state

    async def become_operator(self):
        """Wait for the lock of a page that has gone."""
        async with asyncio.timeout(4.0):
            while not (await self.do("acquire"))["ok"]:
                await asyncio.sleep(0.02)

    async def stick(self, **changes):
        message = {
            "type": "stick", "seq": self.sequence, "t": time.monotonic(), "axes": [0.0] * 6,
            "connection": self.welcome["connection"], "clutch": False, "gripper": False,
            "device": "test", **changes,
        }  # fmt: skip
        self.sequence += 1
        await self.ws.send_json(message)

    @contextlib.asynccontextmanager
    async def driving(self, **changes):
        """Somebody at the stick meanwhile."""

        async def drive():
            while True:
                await self.stick(**changes)
                await asyncio.sleep(0.05)

        task = asyncio.create_task(drive())
        await asyncio.sleep(0.15)
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class TestRights:
    def test_health_needs_no_cookie_and_everything_else_does(self, stage):
        async def look():
            async with aiohttp.ClientSession() as http:
                async with http.get(stage.base + "/healthz") as reply:
                    assert await reply.json() == {"ok": True, "robot": True}
                for path in ("/", "/review", "/static/app.js", "/api/state", "/api/episodes"):
                    async with http.get(stage.base + path) as reply:
                        assert reply.status == 401, path
                        assert "address that the console printed" in await reply.text()
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await http.ws_connect(stage.base + "/ws", headers={"Origin": stage.base})
                assert refused.value.status == 401

        run(look())

    def test_a_wrong_or_used_token_is_refused(self, stage):
        async def look():
            url = stage.new_url()
            async with aiohttp.ClientSession() as http:
                reply = await http.get(stage.base + "/?token=wrong")
                assert reply.status == 401
                reply = await http.get(url, allow_redirects=False)
                assert reply.status == 303
                cookie = reply.headers["Set-Cookie"]
            async with aiohttp.ClientSession() as http, http.get(url) as reply:
                assert reply.status == 401
                assert "has used it" in await reply.text()
            return cookie

        cookie = run(look())
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert len(stage.running.urls) > 0  # the address for the next browser was told

    @pytest.mark.parametrize(
        "headers",
        [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}],
    )
    def test_another_origin_or_host_is_refused(self, stage, headers):
        async def look():
            async with Browser(stage) as browser:
                body = {"id": "1", "do": "stop"}
                status, text = await browser.post("/api/command", body, **headers)
                assert status == 403
                assert "refused" in text or "does not answer" in text
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await browser.http.ws_connect(
                        stage.base + "/ws", headers={"Origin": stage.base, **headers}
                    )
                assert refused.value.status == 403
                async with browser.http.post(stage.base + "/api/command", json=body) as reply:
                    assert reply.status == 403  # no origin at all

        run(look())
        assert stage.status.safety is not S.ESTOP

    def test_pages_forbid_foreign_parts(self, stage):
        async def look():
            async with Browser(stage) as browser, browser.http.get(stage.base) as reply:
                assert reply.status == 200
                policy = reply.headers["Content-Security-Policy"]
                assert "default-src 'self'" in policy
                assert "unsafe" not in policy
                assert reply.headers["X-Content-Type-Options"] == "nosniff"
                assert "Access-Control-Allow-Origin" not in reply.headers
                return await reply.text()

        page = run(look())
        assert "http://" not in page
        assert "https://" not in page

    @pytest.mark.parametrize("name", ["..%2fserver.py", "app.py", "index.html", "no.js"])
    def test_static_files_are_scripts_and_styles_of_one_folder(self, stage, name):
        async def look():
            async with Browser(stage) as browser:
                return (await browser.http.get(f"{stage.base}/static/{name}")).status

        assert run(look()) == 404


class TestLimits:
    def test_a_body_that_is_too_long_is_refused(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page = await browser.page()
                key = {"X-Console-Client": page.welcome["key"]}
                long = json.dumps({"id": "1", "do": "note", "text": "x" * LONGEST_MESSAGE})
                assert (await browser.post("/api/command", long, **key))[0] == 413
                number = '{"id": "1", "do": "note", "t": ' + "9" * 400 + "}"
                for bad in ("{", "[]", "7", "", number, b"\xff"):
                    assert (await browser.post("/api/command", bad, **key))[0] == 400

        run(look())

    def test_too_many_requests_are_refused_but_never_a_stop(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page = await browser.page()
                key = {"X-Console-Client": page.welcome["key"]}
                replies = [
                    (await browser.post("/api/command", {"id": str(i), "do": "no"}, **key))[0]
                    for i in range(90)
                ]
                status, _ = await browser.post("/api/command", {"id": "s", "do": "stop"}, **key)
                return replies, status

        replies, stopped = run(look())
        assert replies[:50] == [400] * 50
        assert 429 in replies
        assert stopped == 200
        stage.until(S.ESTOP)

    def test_stops_by_request_have_a_limit_of_their_own(self, stage):
        """Each was a line of the log, and a request of the robot's loop, without end."""

        async def flood():
            async with Browser(stage) as browser:
                began = time.monotonic()
                replies = await asyncio.gather(*(
                    browser.post("/api/command", {"id": f"s{i}", "do": "stop"}) for i in range(300)
                ))  # fmt: skip
                return [status for status, _ in replies], time.monotonic() - began

        replies, took = run(flood())
        through = len(replies) - replies.count(429)  # 503: the robot's loop has not read the others
        assert replies.count(200) > 0
        assert 70 <= through <= 71 + 70 * took
        stage.until(S.ESTOP)

    def test_connections_without_a_cookie_are_few_and_keep_nobody_out(self, stage):
        """Any number used up the files of the console."""

        async def flood():
            async with Browser(stage) as browser:
                page = await browser.page()
                port = stage.running.server.port
                idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
                ends = [asyncio.create_task(reader.read()) for reader, _ in idle]
                while sum(one.done() for one in ends) < 200 - MOST_STRANGERS:
                    await asyncio.sleep(0.01)
                async with Browser(stage) as another:
                    assert (await another.post("/api/command", {"id": "1", "do": "stop"}))[0] == 200
                assert (await page.do("stop"))["ok"]
                assert not all(one.done() for one in ends)
                for _, writer in idle:
                    writer.close()

        run(flood())

    def test_a_thousand_messages_a_second_are_limited_and_a_stop_gets_through(self, stage):
        stage.in_policy()

        async def flood():
            async with Browser(stage) as browser:
                page = await browser.page()
                began = time.monotonic()
                for _ in range(1000):
                    await page.ws.send_json({"type": "ping", "c": 0})
                reply = await page.do("stop")
                return time.monotonic() - began, reply

        took, reply = run(flood())
        assert reply["ok"]
        assert took < 3.0
        stage.until(S.ESTOP)

    def test_the_word_stop_lets_no_flood_through(self, stage):
        async def flood():
            async with Browser(stage) as browser:
                page = await browser.page()
                for _ in range(1000):
                    await page.ws.send_json({"type": "ping", "c": 0, "why": "stop"})
                pongs = 0
                with contextlib.suppress(TimeoutError):
                    while await page.next("pong", 1.0):
                        pongs += 1
                return pongs

        assert run(flood()) <= 240  # of two seconds at most

    def test_a_flood_is_told_in_words(self, stage):
        async def flood():
            async with Browser(stage) as browser:
                page = await browser.page()
                for _ in range(400):
                    await page.ws.send_json({"type": "ping", "c": 0})
                return await page.next("error")

        error = run(flood())
        assert error["code"] == 429
        assert "messages per second" in error["why"]

    @pytest.mark.parametrize(
        ("message", "words"),
        [
            ("{", "JSON object"), ("[]", "JSON object"), ("[" * 4000, "JSON object"),
            ('{"type": "ping", "c": ' + "9" * 400 + "}", "JSON object"),
            ('{"type": "fly"}', "no message of a page"), ('{"type": "stick", "axes": 3}', "axes"),
        ],
    )  # fmt: skip
    def test_a_malformed_message_is_answered_and_harms_nobody(self, stage, message, words):
        async def look():
            async with Browser(stage) as browser:
                page = await browser.page()
                await page.ws.send_str(message)
                error = await page.next("error")
                assert error["code"] == 400
                assert words in error["why"]
                assert (await page.state())["robot"]["safety"] != "none"

        run(look())

    def test_an_oversized_message_closes_that_socket_only(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page, other = await browser.page(), await browser.page("Bob")
                await page.ws.send_str("x" * (LONGEST_MESSAGE + 1))
                while (message := await page.ws.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
                assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
                assert message.data in (1009, None)
                await other.state()

        run(look())


class TestOperator:
    def test_a_second_operator_is_refused_and_looks_on(self, stage):
        async def look():
            async with Browser(stage) as one, Browser(stage) as two:
                ann, bob = await one.page("Ann"), await two.page("Bob")
                await ann.become_operator()
                async with ann.driving():
                    refused = await bob.do("acquire")
                    assert refused["code"] == 422
                    assert "Ann (page" in refused["why"]
                    assert (await bob.do("arm"))["code"] == 409
                    status, text = await two.post(
                        "/api/command", {"id": "x", "do": "success"},
                        **{"X-Console-Client": bob.welcome["key"]},
                    )  # fmt: skip
                    assert status == 409
                    assert "look on" in text
                    state = await bob.state()
                    assert state["operator"]["name"] == "Ann"
                    assert (await bob.do("ask"))["ok"]
                    await ann.state(lambda state: state["operator"]["asker_name"] == "Bob")
                    assert (await ann.do("grant"))["ok"]
                    await bob.state(lambda state: state["operator"]["name"] == "Bob")
                    assert (await bob.do("release"))["ok"]

        run(look())

    def test_the_lock_runs_out_two_seconds_after_the_page_has_gone(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page, other = await browser.page("Ann"), await browser.page("Bob")
                await page.become_operator()
                async with page.driving():
                    pass
                await page.ws.close()
                began = time.monotonic()
                while not (await other.do("acquire"))["ok"]:
                    await asyncio.sleep(0.05)
                return time.monotonic() - began

        assert 1.5 < run(look()) < 2.6

    def test_a_page_that_is_loaded_again_is_the_same_and_sees_the_same(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page = await browser.page("Ann")
                await page.become_operator()
                await page.do("set", values={"speed": 0.3, "frame": "tool"})
                await page.do("success")
                await page.ws.close()
                again = await browser.page("", key=page.welcome["key"])
                assert again.welcome["number"] == page.welcome["number"]
                assert again.welcome["name"] == "Ann"
                assert len(again.welcome["history"]) > 0
                state = await again.state()
                assert state["operator"]["holder"] == page.welcome["number"]
                assert state["settings"]["speed"] == 0.3
                assert state["settings"]["frame"] == "tool"
                assert state["label"]["do"] == "success"
                assert 3.0 < state["label"]["left"] <= 5.0
                await again.do("release")

        run(look())


class TestRobot:
    def test_everybody_may_stop_even_without_a_page_and_reset_and_arm_are_two_steps(self, stage):
        stage.in_policy()

        async def look():
            async with Browser(stage) as browser:
                status, _ = await browser.post("/api/command", {"id": "s1", "do": "stop"})
                assert status == 200
                stage.until(S.ESTOP)
                page = await browser.page()
                await page.become_operator()
                refused = await page.do("arm", t=time.monotonic())
                assert refused["code"] == 422
                assert "estop" in refused["why"]
                assert (await page.do("reset_stop"))["ok"]
                assert (await page.do("arm", t=time.monotonic()))["ok"]
                await page.do("release")

        run(look())
        stage.until(S.HOLD)

    def test_a_stop_with_an_id_of_an_earlier_command_stops(self, stage):
        """It was answered as the earlier one, with 200, and the robot moved on."""

        async def stop():
            async with Browser(stage) as browser:
                page = await browser.page()
                assert (await page.do("note", id="1", text="begins"))["ok"]
                status, _ = await browser.post("/api/command", {"id": "1", "do": "stop"})
                assert status == 200

        for _ in range(2):
            stage.in_policy()
            run(stop())
            stage.until(S.ESTOP, 2)
            time.sleep(1.1)

    def test_a_command_is_done_once_and_a_late_one_that_moves_is_not_done(self, stage):
        stage.in_policy()

        async def look():
            async with Browser(stage) as browser:
                page = await browser.page()
                await page.become_operator()
                assert (await page.do("hold", id="h"))["why"] == ""
                stage.until(S.HOLD)
                stage.in_policy()
                assert (await page.do("hold", id="h"))["code"] == 200
                assert stage.status.safety is S.POLICY
                late = await page.do("policy", t=time.monotonic() - 1.5)
                assert late["code"] == 410
                await page.do("release")

        run(look())

    def test_a_refusal_comes_in_the_loops_own_words(self, stage):
        stage.in_policy()
        stage.ask(Condition.HOLD)
        stage.until(S.HOLD)

        async def look():
            async with Browser(stage) as browser:
                page = await browser.page()
                await page.become_operator()
                reply = await page.do("policy", t=time.monotonic())
                await page.do("release")
                return reply

        reply = run(look())
        assert reply["code"] == 422
        assert "does nothing in 'hold'" in reply["why"] or "did nothing in 'hold'" in reply["why"]

    def test_the_state_shows_joints_beside_their_limits(self, stage):
        async def look():
            async with Browser(stage) as browser:
                return await (await browser.page()).state()

        robot = run(look())["robot"]
        assert [joint["name"] for joint in robot["joints"]] == ["hip", "knee"]
        assert robot["joints"][0]["lower"] == -1.0
        assert robot["joints"][1]["tau_limit"] == 5.0
        assert robot["authority"] in ("policy", "paused", "nobody", "human")


class TestStick:
    def take_over(self, stage, body):
        """Ann drives the robot; `body` is given her page."""
        stage.in_policy()

        async def look():
            async with Browser(stage) as browser:
                page = await browser.page("Ann")
                await page.become_operator()
                async with page.driving(clutch=True, axes=[0.5, 0, 0, 0, 0, 0]):
                    reply = await page.do("take_over", t=time.monotonic())
                    assert reply["ok"], reply
                    assert stage.status.safety is S.HUMAN
                    found = await body(browser, page)
                with contextlib.suppress(ConnectionError):
                    await page.do("release")
                return found

        return run(look())

    def test_a_person_takes_over_drives_and_gives_back(self, stage):
        async def body(browser, page):
            def hip(state):
                return state["robot"]["joints"][0]["q"]

            # The robot may still swing as the policy left it: far more than that is the stick's.
            before = hip(await page.state())
            state = await page.state(lambda state: hip(state) > before + 0.2, seconds=5.0)
            assert state["stick"]["clutch"]
            assert state["robot"]["authority"] == "human"
            await page.do("hold")

        self.take_over(stage, body)

    def test_a_closed_socket_ends_the_authority_within_300_ms(self, stage):
        async def body(browser, page):
            began = time.monotonic()
            await page.ws.close()
            while stage.status.safety is S.HUMAN:
                await asyncio.sleep(0.001)
            return time.monotonic() - began

        stage.in_policy()

        async def look():
            async with Browser(stage) as browser:
                page = await browser.page("Ann")
                await page.become_operator()
                async with page.driving(clutch=True):
                    assert (await page.do("take_over", t=time.monotonic()))["ok"]
                return await body(browser, page)

        took = run(look())
        assert stage.status.safety is S.HOLD
        assert took < 0.3

    def test_a_silent_page_loses_the_authority_within_300_ms(self, stage):
        stage.in_policy()

        async def look():
            async with Browser(stage) as browser:
                page = await browser.page("Ann")
                await page.become_operator()
                async with page.driving(clutch=True):
                    assert (await page.do("take_over", t=time.monotonic()))["ok"]
                last = time.monotonic()
                while stage.status.safety is S.HUMAN:
                    await asyncio.sleep(0.001)
                took = time.monotonic() - last
                await page.do("release")
                return took

        assert run(look()) < 0.35  # from the last message, at most 50 ms before
        assert stage.status.safety is S.HOLD  # never the policy
        assert stage.teleoperator.heard[-1][1] is None

    def test_replayed_late_and_foreign_messages_move_nothing(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page, other = await browser.page("Ann"), await browser.page("Bob")
                await page.become_operator()
                await page.stick()
                await page.state(lambda state: state["stick"]["present"])
                before = len(stage.teleoperator.heard)
                await page.stick(seq=0)
                assert (await page.next("dropped"))["why"] == "repeated or overtaken"
                await page.stick(t=time.monotonic() - 0.2)
                assert "old" in (await page.next("dropped"))["why"]
                await page.stick(connection=other.welcome["connection"])
                assert "another connection" in (await page.next("dropped"))["why"]
                await other.stick()
                assert "only the operator" in (await other.next("dropped"))["why"]
                counted = [intent for _, intent in stage.teleoperator.heard[before:] if intent]
                await page.do("release")
                return counted

        assert run(look()) == []

    def test_of_a_duplicated_tab_only_the_newer_drives(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page = await browser.page("Ann")
                await page.become_operator()
                copy = await browser.page("Ann", key=page.welcome["key"])
                await page.stick()
                assert (await page.next("dropped"))["why"] == "another tab goes on for this one"
                await copy.stick()
                await copy.state(lambda state: state["stick"]["present"])
                before = len(stage.teleoperator.heard)
                await page.ws.close()  # the older one's end takes nothing from the newer
                await copy.stick()
                await copy.state()
                intents = [intent for _, intent in stage.teleoperator.heard[before:]]
                await copy.do("release")
                return intents

        intents = run(look())
        assert intents
        assert None not in intents[:1]

    def test_taking_over_without_a_stick_is_refused_in_words(self, stage):
        stage.in_policy()

        async def look():
            async with Browser(stage) as browser:
                page = await browser.page("Ann")
                await page.become_operator()
                reply = await page.do("take_over", t=time.monotonic())
                await page.do("release")
                return reply

        reply = run(look())
        assert reply["code"] == 422
        assert "no device is heard" in reply["why"]


class TestActor:
    def operate(self, stage, body):
        async def look():
            async with Browser(stage) as browser:
                page = await browser.page("Ann")
                await page.become_operator()
                try:
                    return await body(browser, page)
                finally:
                    await page.do("release")

        return run(look())

    def test_a_label_carries_the_time_of_the_press_and_the_person(self, stage):
        async def body(browser, page):
            pressed = time.time() - 0.4
            assert (await page.do("fail", t=time.monotonic() - 0.4))["ok"]
            return pressed

        pressed = self.operate(stage, body)
        command = stage.actor.commands[-1]
        assert command["do"] == "fail"
        assert command["t"] == pytest.approx(pressed, abs=0.05)
        assert command["operator"].startswith("Ann (page")

    def test_a_refusal_of_the_actor_is_shown_and_no_toast(self, stage):
        stage.actor.refuse["undo"] = "there is no label to undo"

        async def body(browser, page):
            return await page.do("undo")

        reply = self.operate(stage, body)
        assert reply["code"] == 422
        assert reply["why"] == "there is no label to undo"
        stage.actor.refuse.clear()

    @pytest.mark.parametrize(
        ("verb", "arguments"),
        [
            ("discard", {"what": "everything"}), ("evaluate", {"episodes": -1}),
            ("evaluate", {"episodes": True}), ("rollback", {}), ("segment", {"kind": "policy"}),
            ("relabel", {"correction": {"id": "1"}}), ("note", {"text": ""}),
        ],
    )  # fmt: skip
    def test_arguments_that_cannot_be_meant_are_refused(self, stage, verb, arguments):
        async def body(browser, page):
            return await page.do(verb, **arguments)

        before = len(stage.actor.commands)
        assert self.operate(stage, body)["code"] == 400
        assert len(stage.actor.commands) == before

    def test_a_relabel_sent_twice_reaches_the_actor_under_one_id(self, stage):
        correction = {"id": uuid.uuid4().hex, "session": stage.actor.session, "episode": 12,
                      "kind": "success", "from": 40, "value": None}  # fmt: skip

        async def body(browser, page):
            for _ in range(2):
                assert (await page.do("relabel", correction=correction))["ok"]

        self.operate(stage, body)
        sent = [one for one in stage.actor.commands if one["do"] == "relabel"][-2:]
        assert {one["id"] for one in sent} == {correction["id"]}

    def test_everything_is_logged_with_its_person(self, stage):
        async def body(browser, page):
            await page.do("note", text="the gripper pads are worn")
            await page.do("pause_learning")

        self.operate(stage, body)
        lines = [
            json.loads(line)
            for line in (stage.folder / "console_actions.jsonl").read_text().splitlines()
        ]
        note = next(line for line in reversed(lines) if line["action"] == "note")
        assert note["text"] == "the gripper pads are worn"
        assert note["operator"].startswith("Ann")
        assert any(line["action"] == "pause_learning" for line in lines)

    def test_episodes_are_recorded_without_a_browser_and_shown(self, stage):
        stage.actor.phase, stage.actor.episode = "running", 77
        name = f"{stage.actor.session}_77"
        folder = stage.folder / "console" / name
        wait_for(lambda: list(folder.glob("*.jpg")))
        index = next(folder.glob("*.jpg")).stem

        async def look():
            async with Browser(stage) as browser:
                async with browser.http.get(stage.base + "/api/episodes") as reply:
                    names = [one["name"] for one in (await reply.json())["episodes"]]
                async with browser.http.get(f"{stage.base}/api/episodes/{name}") as reply:
                    timeline = await reply.json()
                url = f"{stage.base}/api/episodes/"
                picture = await (await browser.http.get(f"{url}{name}/{index}.jpg")).read()
                missing = (await browser.http.get(f"{url}no_1")).status
                return names, timeline, picture, missing

        names, timeline, picture, missing = run(look())
        assert name in names
        assert timeline["episode"] == 77
        assert timeline["rows"][int(index)]["picture"]
        assert picture[:2] == b"\xff\xd8"
        assert missing == 404


class TestVideo:
    def test_a_picture_waits_for_the_acknowledgement_of_the_one_before(self, stage):
        async def look():
            async with Browser(stage) as browser:
                ws = await browser.http.ws_connect(
                    stage.base + "/ws/video/wrist", headers={"Origin": stage.base}
                )
                first = (await ws.receive(5)).data
                with pytest.raises(TimeoutError):
                    await ws.receive(0.3)
                await ws.send_str("ok")
                second = (await ws.receive(5)).data
                await ws.close()
                return first, second, time.monotonic()

        first, second, now = run(look())
        stamps = [struct.unpack_from("<dI", one) for one in (first, second)]
        assert first[12:14] == b"\xff\xd8"
        assert stamps[1][1] > stamps[0][1]
        assert now - stamps[1][0] < 0.5  # the newest, not the one that came next

    def test_a_camera_that_sends_no_picture_stops_nothing(self, stage):
        newest = stage.camera.newest
        stage.camera.newest = lambda: (b"no picture", time.monotonic())
        try:

            async def look():
                async with Browser(stage) as browser:
                    page = await browser.page()
                    await page.state(lambda state: state["video"][0]["badge"] == "stale")
                    return await page.do("stop")

            reply = run(look())
        finally:
            stage.camera.newest = newest
        assert reply["ok"]
        stage.until(S.ESTOP)

    def test_a_stopped_camera_is_stale_for_every_page(self, stage):
        async def look():
            async with Browser(stage) as browser:
                page = await browser.page()
                stage.camera.stopped = True
                await asyncio.sleep(0.5)
                try:
                    return (await page.state())["video"]
                finally:
                    stage.camera.stopped = False

        (video,) = run(look())
        assert video["badge"] == "stale"
        assert video["age_ms"] > 300


class TestAddress:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
    def test_an_address_of_everything_is_refused(self, host):
        with pytest.raises(ConfigError, match="name the one address"):
            ServerConfig(host=host)

    def test_the_printed_address_of_ipv6_is_answered(self):
        with RunningConsole(new_name(), folder=None, config=ServerConfig(host="::1", port=0)) as it:

            async def look():
                async with (
                    aiohttp.ClientSession() as http,
                    http.get(it.new_url(), allow_redirects=False) as reply,
                ):
                    return reply.status

            assert run(look()) == 303

    def test_two_consoles_of_one_computer_keep_their_pages(self):
        """The second one's cookie took the place of the first one's, and of its stop."""
        with (
            RunningConsole(new_name(), folder=None, config=ServerConfig(port=0)) as one,
            RunningConsole(new_name(), folder=None, config=ServerConfig(port=0)) as two,
        ):

            async def look():
                jar = aiohttp.CookieJar(unsafe=True)  # of addresses in numbers
                async with aiohttp.ClientSession(cookie_jar=jar) as http:
                    found = []
                    for url in (
                        one.new_url(),
                        two.new_url(),
                        one.server.base_url,
                        two.server.base_url,
                    ):
                        async with http.get(url) as reply:
                            found.append(reply.status)
                    return found

            assert run(look()) == [200] * 4

    def test_a_certificate_that_ends_soon_is_kept_and_told(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setattr("hardware.console.certificate._DAYS", 20)
        certificate, _ = ensure_certificate(tmp_path, "127.0.0.1")
        before = fingerprint(certificate)
        assert ensure_certificate(tmp_path, "127.0.0.1")[0] == certificate
        assert fingerprint(certificate) == before
        assert "does in less than 30 days" in caplog.text
        certificate.unlink()
        monkeypatch.undo()
        caplog.clear()
        ensure_certificate(tmp_path, "127.0.0.1")
        ensure_certificate(tmp_path, "127.0.0.1")
        assert caplog.text == ""

    def test_another_computer_is_served_with_tls_only(self):
        with pytest.raises(ConfigError, match="certificate"):
            ServerConfig(host="192.168.1.20")

    def test_tls_with_a_certificate_of_this_installation(self, tmp_path):
        certificate, key = ensure_certificate(tmp_path, "127.0.0.1")
        assert ensure_certificate(tmp_path, "127.0.0.1") == (certificate, key)
        assert key.stat().st_mode & 0o077 == 0
        assert len(fingerprint(certificate).split(":")) == 32
        config = ServerConfig(port=0, certificate=certificate, key=key)
        with RunningConsole(new_name(), folder=None, config=config) as running:

            async def look():
                context = ssl.create_default_context(cafile=str(certificate))
                async with (
                    aiohttp.ClientSession() as http,
                    http.get(running.new_url(), allow_redirects=False, ssl=context) as reply,
                ):
                    return reply.status, reply.headers["Set-Cookie"]

            status, cookie = run(look())
        assert running.server.base_url.startswith("https://")
        assert status == 303
        assert "Secure" in cookie

    def test_a_port_that_is_taken_is_a_sentence(self, stage):
        taken = ServerConfig(port=stage.running.server.port)

        async def look():
            server = type(stage.running.server)(stage.console, taken)
            await server.start()

        with pytest.raises(ConfigError, match="choose another with host= or port="):
            run(look())
