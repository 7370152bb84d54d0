"""Ten thousand short episodes with whatever can happen to a robot, against a plain account of it.

The port keeps a diary of every tick: whose command was followed, where that led, what was measured
when. The account of an episode is written down from the diary alone, in the order of its rules.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from hardware.control.robot_loop import Executed, RobotStatus
from hardware.control.safety import SafetyState as S
from hardware.learning.hardware_env import HardwareEnv, HardwareEnvConfig, Phase
from hardware.learning.port import Readings
from hardware.learning.reset import ResetConfig, TaskReset
from hardware.learning.rewards import RewardInputs, StepJudgement
from robot_rl.core.action import ActionMap
from robot_rl.core.observation import RobotState, TermConfig
from robot_rl.core.robot_command import JointCommand
from tests.hardware.control.robots import two_joints

TICK, TICKS = 0.01, 4
DT = TICK * TICKS
SPEC = two_joints()
MAP = ActionMap.joint_positions(SPEC, scale=0.3)
ZERO = np.zeros((1, 2))
EPISODES = 10_000


def to(q: np.ndarray) -> JointCommand:
    return JointCommand(q=q, dq=ZERO, tau=ZERO, kp=ZERO, kd=ZERO)


@dataclass
class Border:
    """Diary of a control period, and what could be read at its end."""

    now: float = 0.0
    states: list[S] = field(default_factory=list)
    followed: list[np.ndarray | None] = field(default_factory=list)
    measured: np.ndarray = field(default_factory=lambda: np.zeros((1, 2)))
    measured_at: float = 0.0
    told_at: float = 0.0
    restarted: bool = False


class DiaryPort:
    """A robot in which everything happens by chance, and is written down."""

    def __init__(self, seed: int) -> None:
        self.spec, self.world_widths = SPEC, {}
        self._rng = np.random.default_rng(seed)
        self._now, self._safety = 0.0, S.POLICY
        self._policy: Any = None
        self._counts = {S.POLICY: 0, S.HUMAN: 0, None: 0}
        self._q = np.array([[0.2, -0.5]])
        self._silent = self._blind = 0
        self._executed: Executed | None = None
        self.border = Border()
        self.sent: JointCommand | None = None

    def now(self) -> float:
        return self._now

    def send(self, command: Any, stamp: float) -> None:
        assert stamp == self.border.measured_at
        self.sent = command

    def request(self, request: Any) -> None:
        raise AssertionError("nobody asked it to operate")

    def begin_world(self, seed: int) -> int:
        raise AssertionError("there is no world")

    def close(self) -> None:
        pass

    def wait_until(self, time: float) -> None:
        last, self.border = self.border, Border()
        self.border.restarted = self._rng.random() < 0.004
        if self.border.restarted:
            self._counts = dict.fromkeys(self._counts, 0)
        for _ in range(round((time - self._now) / TICK)):
            self._tick()
        self.border.now = self._now
        self.border.measured = self._q.copy()
        for name, chance in (("_silent", 0.004), ("_blind", 0.01)):
            left = getattr(self, name)
            if left == 0 and self._rng.random() < chance:
                left = 10
            setattr(self, name, max(0, left - 1))
        self.border.measured_at = last.measured_at if self._blind else self._now
        self.border.measured = last.measured if self._blind else self._q.copy()
        self.border.told_at = last.told_at if self._silent else self._now

    def _tick(self) -> None:
        self._now += TICK
        self._safety = self._next()
        followed = None
        if self._safety is S.POLICY and self.sent is not None:
            limited = self._rng.random() < 0.2  # by a limit of the loop
            followed = self.sent.q + (0.05 * self._rng.standard_normal((1, 2)) if limited else 0.0)
        elif self._safety is S.HUMAN:
            followed = self._q + 0.2 * self._rng.standard_normal((1, 2))
        self._counts[self._safety if followed is not None else None] += 1
        if followed is not None:
            self._q = followed
        self.border.states.append(self._safety)
        self.border.followed.append(followed)

    def _next(self) -> S:
        draw = self._rng.random()
        if self._safety is S.POLICY:
            return S.HUMAN if draw < 0.02 else S.HOLD if draw < 0.03 else S.POLICY
        if self._safety is S.HUMAN:
            return S.POLICY if draw < 0.1 else S.HOLD if draw < 0.12 else S.HUMAN
        return S.POLICY if draw < 0.2 else S.HOLD

    def read(self) -> Readings:
        border = self.border
        followed = border.followed[-1] if border.followed else None
        policy, human, other = self._counts.values()
        return Readings(
            now=self._now, state_stamp=border.measured_at,
            state=RobotState({
                "joint_position": border.measured, "joint_velocity": ZERO, "joint_effort": ZERO,
            }),
            executed=Executed(
                time=self._now, safety=self._safety, policy_ticks=policy, human_ticks=human,
                other_ticks=other, setpoint=None if followed is None else to(followed),
            ),
            status=RobotStatus(
                time=border.told_at, ticks=0, safety=self._safety, conditions=frozenset(), trip="",
                refused="", state_age=0.0, clamped=0, replaced=0, missed=0,
            ),
        )  # fmt: skip


class Corner:
    """The hip pays, a far hip terminates, a far knee is success; the start is remembered."""

    def __init__(self) -> None:
        self.starts = 0

    def begin(self, start: RewardInputs) -> None:
        assert start.step == 0
        self.starts += 1

    def judge(self, step: RewardInputs) -> StepJudgement:
        return self.of(step.inputs.state.joint_position)

    @staticmethod
    def of(q: np.ndarray) -> StepJudgement:
        hip, knee = q[0].tolist()
        return StepJudgement(reward=hip, terminated=hip > 0.42, success=knee > -0.28)


@dataclass
class Account:
    """Account of episodes from the diary, in plain words: what every step must have been."""

    limit: int
    waits: int
    """Control periods that the reset waits."""
    terminate_on_success: bool
    running: bool = False
    steps: int = 0
    count: int = 0
    """Borders at which the present reset was led."""
    led: bool = False
    fresh: bool = False
    last_action: np.ndarray = field(default_factory=lambda: np.zeros((1, 2), np.float32))

    def is_fresh(self, border: Border) -> bool:
        return border.now - border.measured_at <= 0.1

    def is_silent(self, border: Border) -> bool:
        return border.now - border.told_at > 0.25

    def obs(self, border: Border) -> np.ndarray:
        return np.concatenate([border.measured.astype(np.float32), self.last_action], axis=-1)

    def look(self, border: Border) -> None:
        """Lead the reset at a border."""
        if self.is_silent(border):
            return
        if border.states and border.states[-1] is not S.POLICY:
            self.count = 0
            return
        self.count += 1
        self.led = self.led or self.count > self.waits

    def step(self, border: Border, action: np.ndarray, ending: str) -> dict[str, Any]:
        row: dict[str, Any] = {"reward": 0.0, "terminated": False, "truncated": False,
                               "success": False, "valid": False, "intervened": False}  # fmt: skip
        if not self.running:
            self.look(border)
            policy = border.states[-1] is S.POLICY and not self.is_silent(border)
            if self.led and policy and self.is_fresh(border):
                self.running, self.steps, self.fresh = True, 0, True
                self.last_action = np.zeros((1, 2), np.float32)
            return row | {"action": self.last_action, "obs": self.obs(border)}
        self.steps += 1
        paused = (
            self.is_silent(border) or border.restarted
            or any(followed is None for followed in border.followed)
        )  # fmt: skip
        if border.followed[-1] is not None:
            exact = MAP.from_command(to(border.followed[-1])).clip(-1, 1)
            self.last_action = exact.astype(np.float32)
        else:
            self.last_action = action
        silent = self.is_silent(border) or border.restarted
        row["intervened"] = S.HUMAN in border.states and not silent
        judged = StepJudgement() if paused else Corner.of(border.measured.astype(np.float32))
        row["reward"] = judged.reward
        success = judged.success
        row["terminated"] = judged.terminated or (success and self.terminate_on_success)
        late = paused or bool(ending) or self.steps >= self.limit
        row["truncated"] = late and not row["terminated"]
        ended = row["terminated"] or row["truncated"]
        row["success"] = success and ended
        row["valid"] = not paused and self.fresh and self.is_fresh(border)
        self.fresh = self.is_fresh(border)
        row |= {"action": self.last_action, "obs": self.obs(border)}
        if ended:
            self.running, self.count, self.led = False, 0, False
            self.look(border)
        return row


def play(seed: int, episodes: int, tally: dict[str, int]) -> None:
    """Episodes of one environment, every step of which is held against its account."""
    rng = np.random.default_rng(seed)
    limit, waits, ends = int(rng.integers(1, 7)), int(rng.integers(0, 4)), bool(rng.random() < 0.5)
    port, rule = DiaryPort(seed), Corner()
    steps = [{"wait": {"seconds": waits * DT - 0.5 * DT}}] if waits else []
    config = HardwareEnvConfig(
        control_dt=DT, episode_length=limit * DT, terminate_on_success=ends,
        reset=ResetConfig(tasks=[TaskReset(steps=steps)]),
    )  # fmt: skip
    terms = [TermConfig(term="joint_position"), TermConfig(term="last_action")]
    env = HardwareEnv(port, MAP, terms, config, {"task": rule})
    account = Account(limit, waits, ends)
    env.start_reset()
    account.look(port.border)
    previous = None
    while env.episode < episodes or env.phase is Phase.running:
        action = rng.uniform(-1.2, 1.2, (1, 2)).astype(np.float32)
        ending = "asked" if rng.random() < 0.02 and env.phase is Phase.running else ""
        if ending:
            env.end_episode(ending)
        was_running = env.phase is Phase.running
        assert was_running == account.running
        step = env.step(torch.from_numpy(action))
        row = account.step(port.border, action.clip(-1, 1), ending)
        for name in ("terminated", "truncated", "success", "valid", "intervened"):
            assert bool(getattr(step, name)) == row[name], (name, seed, env.episode, env.steps)
        assert float(step.reward) == np.float32(row["reward"])
        # Two ways of rounding: an action that was followed as it is is not reckoned back.
        assert abs(step.action.numpy() - row["action"]).max() <= 1e-6
        assert abs(step.next_obs["actor"].numpy() - row["obs"]).max() <= 1e-6
        assert torch.equal(step.obs["actor"], step.next_obs["actor"])
        assert (env.phase is Phase.running) == account.running
        if previous is not None:
            assert env.episode == previous + (account.running and not was_running)
        previous = env.episode
        for name in ("terminated", "truncated", "success", "valid", "intervened"):
            tally[name] = tally.get(name, 0) + row[name]
        ended = row["terminated"] or row["truncated"]
        tally["borders"] = tally.get("borders", 0) + (row["intervened"] and ended)
        tally["paused"] = tally.get("paused", 0) + (ended and not row["valid"])
    assert rule.starts == env.episode


@pytest.mark.slow
def test_ten_thousand_episodes_have_no_wrong_successor_reward_or_flag():
    tally: dict[str, int] = {}
    for seed in range(EPISODES // 100):
        play(seed, 100, tally)
    assert min(tally.values()) > 300, f"the episodes must show everything: {tally}"


def test_some_of_them_quickly():
    tally: dict[str, int] = {}
    for seed in range(1000, 1010):
        play(seed, 20, tally)
    assert tally["valid"] > 0
