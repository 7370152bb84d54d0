"""A robot process, a policy, an actor, a teleoperator and a console that run beside a test."""

import asyncio
import contextlib
import itertools
import math
import multiprocessing
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hardware.console.operation import Console
from hardware.console.robot_view import RobotView
from hardware.console.server import ConsoleServer, ServerConfig
from hardware.console.teleop_thread import TeleopThread
from hardware.console.timeline import TimelineReader
from hardware.console.video import make_streams
from hardware.control.clock import MonotonicClock
from hardware.control.ipc import (
    ArraySubscriber,
    CommandLayout,
    CommandPublisher,
    RequestPublisher,
    StatusSubscriber,
)
from hardware.control.monitors import SafetyLimits, StampedCommand
from hardware.control.process import RobotChannels, RobotProcess
from hardware.control.request_socket import send_request
from hardware.control.safety import Condition, SafetyState
from hardware.control.stopping import StopConfig
from hardware.drivers.fake_driver import FakeDriver
from hardware.teleop.actor_socket import ActorConnection, ActorSocket
from hardware.teleop.input_device import HostDevice
from policies.cameras import CameraInput
from robot_rl.core.robot_command import CommandKind, JointCommand
from robot_rl.training.reporting.statistics import wilson_interval
from tests.hardware.control.robots import two_joints

PERIOD = 0.004
PATIENT = SafetyLimits(
    state_late=0.5, state_lost=1.0, command_late=0.4, command_lost=0.8, overrun_share=1.0,
    overrun_ticks=1000, clock_skew=1.0, lease_late=0.15, lease_lost=0.25,
)  # fmt: skip
"""Shared machines stall; the lease keeps its times."""


def _run_robot(name: str) -> None:
    clock = MonotonicClock()
    process = RobotProcess(
        FakeDriver(two_joints(), clock, max_age=1.0), name=name, clock=clock, period=PERIOD,
        limits=PATIENT, stop=StopConfig(ramp_time=0.3, stop_time=0.2),
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):
        process.run()


@contextlib.contextmanager
def robot_process(name: str) -> Iterator[StatusSubscriber]:
    """A robot in a process of its own, with a fake driver."""
    child = multiprocessing.get_context("spawn").Process(target=_run_robot, args=(name,))
    child.start()
    status = StatusSubscriber(RobotChannels(name).status)
    try:
        wait_for(lambda: status.newest() is not None, 20.0)
        yield status
    finally:
        status.close()
        child.kill()
        child.join()
        RobotChannels(name).remove_dead()


def wait_for(condition: Callable[[], Any], seconds: float = 15.0) -> float:
    """Time until something is so [s]; fails after a while."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"waited {seconds} s in vain"
        time.sleep(0.001)
    return time.monotonic() - began


def make_ready(name: str, status: StatusSubscriber) -> None:
    """Arm, wait for the ramp, and arm again."""
    operator = RobotChannels(name).operator
    send_request(operator, Condition.ARM)
    wait_for(lambda: status.safety is SafetyState.HOLD)
    send_request(operator, Condition.ARM)
    wait_for(lambda: status.safety is SafetyState.READY)


class _Beside:
    """A thread that does something again and again."""

    def __init__(self, period: float) -> None:
        self._period, self._ends = period, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self.close()

    def _run(self) -> None:
        while not self._ends.wait(self._period):
            self.step(time.monotonic())

    def step(self, now: float) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


def to(q: np.ndarray) -> JointCommand:
    zero = np.zeros((1, 2))
    return JointCommand(
        q=np.asarray(q, float), dq=zero, tau=zero, kp=np.array([[40.0, 20]]),
        kd=np.array([[4.0, 2]]),
    )  # fmt: skip


class SimplePolicy(_Beside):
    """Swings about the default pose, 50 times a second."""

    def __init__(self, name: str) -> None:
        super().__init__(0.02)
        layout = CommandLayout(two_joints(), CommandKind.joint)
        self._commands = CommandPublisher(RobotChannels(name).policy, layout)

    def step(self, now: float) -> None:
        swing = 0.12 * math.sin(0.8 * now)
        command = to(np.array([[0.2 + swing, -0.5 - swing]]))
        self._commands.send(StampedCommand(command=command, stamp=time.monotonic()))

    def close(self) -> None:
        self._commands.close()


class SimpleTeleoperator:
    """x and y of the stick turn the two joints from where they are measured."""

    def __init__(self, name: str) -> None:
        channels = RobotChannels(name)
        spec = two_joints()
        self._operator = channels.operator
        self._commands = CommandPublisher(channels.human, CommandLayout(spec, CommandKind.joint))
        self._requests = RequestPublisher(channels.requests)
        self._state = ArraySubscriber(channels.state, spec.state_widths)
        self._status = StatusSubscriber(channels.status)
        self._q = np.zeros((1, 2))
        self._target = np.zeros((1, 2))
        self.intent: Any = None
        self.heard: list[tuple[float, Any]] = []
        """Intents that came, with their times."""
        self.refusal, self.handover = "", 1.0
        self._segment = "human"

    def set_intent(self, intent: Any, now: float) -> None:
        self.intent = intent
        self.heard.append((now, intent))

    def take_over(self, now: float) -> None:
        self.refusal = "" if self.intent is not None else "no device is heard"
        if not self.refusal:
            send_request(self._operator, Condition.HAND_TO_HUMAN)

    def give_back(self, now: float) -> None:
        self.refusal = ""
        send_request(self._operator, Condition.ENABLE_POLICY)

    def rewind(self, seconds: float, now: float) -> None:
        self.refusal = "this teleoperator remembers no path"

    def forget_path(self) -> None:
        pass

    def mark(self, kind: Any, now: float) -> None:
        self._segment = kind.value

    def status(self, now: float) -> dict[str, Any]:
        human = self._status.safety is SafetyState.HUMAN
        self._segment = self._segment if human else "human"
        return {"refusal": self.refusal, "asking": "", "handover": self.handover, "leads": human,
                "rewinding": False, "segment": self._segment if human else "policy"}  # fmt: skip

    def tick(self, now: float) -> None:
        if (newer := self._state.newer()) is not None:
            self._q = np.array(newer[0]["joint_position"])
        intent = self.intent
        if self._status.safety is not SafetyState.HUMAN:
            self._target = self._q.copy()
        elif intent and intent["clutch"]:
            self._target += 0.02 * intent["speed"] * np.array([intent["axes"][:2]])
        if intent is not None:
            self._requests.update(heartbeat=now, publishers=1, estop_down=False)
        self._commands.send(StampedCommand(command=to(self._target), stamp=now))

    def close(self) -> None:
        for one in (self._commands, self._requests, self._state, self._status):
            one.close()


class SimpleActor(_Beside):
    """An actor that runs episodes, takes labels and reports numbers; learns nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(0.05)
        self._socket = ActorSocket(name)
        self.session = uuid.uuid4().hex
        self.commands: list[dict[str, Any]] = []
        """Commands that came."""
        self.episode, self._since, self.phase = 12, time.monotonic(), "running"
        self.paused, self.segment, self.trials, self.frozen = False, "policy", 0, False
        self.reset_step: dict[str, Any] | None = None
        """Present step of a reset."""
        self.refuse: dict[str, str] = {}
        """Commands that are refused, each with the reason."""
        self.asked = [0.7, 0.3, -0.4, 1.0]
        """Action that the policy asks for."""

    def step(self, now: float) -> None:
        for command in self._socket.poll():
            self.commands.append(command)
            why = self.refuse.get(command["do"], "")
            self._socket.answer(command["id"], not why, why, self._labelled(command))
            if not why:
                self._obey(command)
        self._socket.tell(self.snapshot(now))

    def _labelled(self, command: dict[str, Any]) -> str:
        """Name of the episode that a command is a label of."""
        if command["do"] in ("success", "fail", "discard", "undo"):
            return f"{self.session}_{self.episode}"
        meant = command.get("correction")
        return f"{meant['session']}_{meant['episode']}" if meant else ""

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "pause_learning" | "resume_learning":
                self.paused = command["do"] == "pause_learning"
            case "freeze_policy" | "release_policy":
                self.frozen = command["do"] == "freeze_policy"
            case "evaluate":
                self.trials = command["episodes"]
            case "segment":
                self.segment = command["kind"]
            case "reset":
                self.phase = "waiting"
            case "ready":
                self.phase, self._since = "running", time.monotonic()
                self.episode += 1
            case "end_episode" | "fail" | "success":
                self.phase = "waiting"

    def snapshot(self, now: float) -> dict[str, Any]:
        t = now - self._since
        p = 0.5 + 0.42 * math.sin(0.5 * t) + 0.03 * math.sin(7 * t)
        prompts = {"waiting": "Put the peg back into the holder, then confirm."}
        return {
            "session": self.session, "episode": self.episode, "time": t, "step": int(10 * t),
            "phase": self.phase, "prompt": prompts.get(self.phase, ""), "segment": self.segment,
            "progress": 0.4, **({} if self.reset_step is None else {"reset": self.reset_step}),
            "success_probability": p, "q": 0.8 * p + 0.1 * math.sin(3 * t), "policy_version": 184,
            "weights_age": 3.2, "spool": 1_240_000, "unacked": 12, "intervention_rate": 0.18,
            "success_rate": 0.75, "success_interval": wilson_interval(9, 12), "episodes": 12,
            "robot_minutes": 21.4, "frozen": self.frozen, "evaluating": self.trials,
            "evaluation": {
                "episodes": 7, "of": 10, "successes": 5, "interval": wilson_interval(5, 7),
                "version": 181,
            },
            "who": "human" if self.segment == "human" else "policy",
            "action_names": ["x", "y", "z", "gripper"],
            "asked": self.asked, "action": [-0.2, 0.6, 0.5, 1.0],
            "learner": {
                "version": 186, "state": "",
                "updates_per_second": 41.7, "utd": 3.9, "utd_wanted": 4, "critic_loss": 0.0213,
                "actor_loss": -0.412, "temperature": 0.0312, "q_mean": 0.63, "updates": 46160,
                "steps": 11840, "online_rows": 11840, "prior_rows": 3630, "intervened_steps": 1630,
                "corrections": 7, "unaided_success": 0.55, "helped_episodes": 0.3,
                "success_seconds": 6.2, "episode_seconds": 7.9, "paused": self.paused,
            },
        }  # fmt: skip

    def close(self) -> None:
        self._socket.close()


class DrawnCamera:
    """Pictures with a dot that moves; its faults can be switched on."""

    drawn = False

    def __init__(self, name: str, rate: float = 30.0) -> None:
        self.name = name
        self._period = 1.0 / rate
        self.stopped = self.black = self.same = False
        self._stamp = 0.0
        self._grid = np.mgrid[0:240, 0:320].astype(np.float32)

    def newest(self) -> tuple[np.ndarray, float] | None:
        now = time.monotonic()
        if not self.stopped and now - self._stamp >= self._period:
            self._stamp = now
        if self.black:
            return np.zeros((240, 320, 3), np.uint8), self._stamp
        t = 0.0 if self.same else self._stamp
        rows, columns = self._grid
        dot = (rows - 120 - 60 * math.sin(t)) ** 2 + (columns - 160 - 90 * math.cos(t)) ** 2 < 400
        image = np.stack([40 + rows / 4, 50 + columns / 6, 90 + 0 * rows], axis=-1).astype(np.uint8)
        image[dot] = (230, 160, 40)
        return image, self._stamp


class RunningConsole:
    """A console server in a thread."""

    def __init__(
        self, name: str, *, folder: Path | None, cameras: Any = (), teleoperator: Any = None,
        config: ServerConfig | None = None, seen: Mapping[str, CameraInput] | None = None,
        host_stick: HostDevice | None = None,
    ) -> None:  # fmt: skip
        self.urls: list[str] = []
        self.console = Console(
            RobotView(name, two_joints(), SafetyLimits(external_force=20.0)), ActorConnection(name),
            teleoperator=TeleopThread(teleoperator) if teleoperator else None,
            host_stick=host_stick, streams=make_streams(cameras, seen), folder=folder,
        )  # fmt: skip
        self.server = ConsoleServer(
            self.console, config or ServerConfig(port=0),
            reader=TimelineReader(folder) if folder else None, on_token=self.urls.append,
        )  # fmt: skip
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started, self._ends = threading.Event(), asyncio.Event()

    def __enter__(self) -> "RunningConsole":
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()

    def new_url(self) -> str:
        return self.server.new_url()

    def drop_sockets(self) -> None:
        """Close every socket, as the end of the console's process does."""
        asyncio.run_coroutine_threadsafe(self.server.drop_sockets(), self._loop).result(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        await self.server.start()
        self._started.set()
        await self._ends.wait()
        await self.server.stop()


_numbers = itertools.count(1)


def new_name() -> str:
    """Name of channels that nobody else has."""
    return f"console_test.{uuid.uuid4().hex[:8]}.{next(_numbers)}"
