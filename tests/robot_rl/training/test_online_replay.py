"""The rings of a learner beside robots whose critics know the returns that were reached."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import MonteCarloReturns
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.datasets.writer import write_new
from robot_rl.link.transitions import Changed, Ended, Outcome, Transition
from robot_rl.training.config import PriorConfig, TrainerConfig
from robot_rl.training.online_replay import OnlineReplay
from robot_rl.training.prior import open_prior
from tests.fakes import CPU
from tests.robot_rl.training.test_prior_pictures import FRONT, WORLD, opened, run_that_saw

SPEC = EnvSpec(
    num_envs=1, device=CPU, groups={"actor": GroupSpec(shape=(2,))}, action_size=1, control_dt=0.1
)
TOLD = DatasetSpec(groups={"actor": 2}, action_size=1, control_dt=0.1)


def learner(failure_reward: float | None, groups: tuple[str, ...] = ("actor",)) -> Any:
    """As much of a learner as its rings ask for."""
    returns = None
    if failure_reward is not None:
        returns = MonteCarloReturns(failure_reward=failure_reward, online=True)
    return SimpleNamespace(
        actor_groups=groups, critic_groups=(), gamma=0.9, n_step=1, chunk_length=0, compile=False,
        intervention_mask=False, monte_carlo_returns=returns, samples_per_update=4,
    )  # fmt: skip


def rings(failure_reward: float | None, **settings: Any) -> OnlineReplay:
    config = TrainerConfig(replay_capacity=100, **settings)
    return OnlineReplay(config, SPEC, learner(failure_reward), seed=0)


def step(robot: str, index: int, *, episode: int = 0, reward: float = 0.0, last: bool = False):
    place = np.array([episode, index], np.float32)
    frame: Any = SimpleNamespace(
        obs={"actor": place}, action=np.zeros(1, np.float32), intervened=False, stamp=0.0,
        policy_version=0,
    )  # fmt: skip
    outcome = Outcome(reward, last, False, True, False, "")
    return Transition((robot, episode), index, frame, {"actor": place}, outcome, True, False)


def returns(ring: ReplayBuffer) -> list[float]:
    known = ring.strided_sample(len(ring)).extra["monte_carlo_return"]
    return [round(one, 4) for one in known.tolist()]


def take(rows: OnlineReplay, *events: Any) -> None:
    for event in events:
        for _ in rows.take(event):
            pass


def succeeding(steps: int, pictures: bool = False) -> Episode:
    last = np.arange(steps) == steps - 1
    shape = (steps + 1, 16, 16, 3)
    return Episode(
        obs={"actor": np.zeros((steps + 1, 2), np.float32)}, reward=last.astype(np.float32),
        action=np.zeros((steps, 1), np.float32), terminated=last, success=last,
        truncated=np.zeros(steps, bool), valid=np.ones(steps, bool),
        intervened=np.zeros(steps, bool), policy_version=np.zeros(steps, np.int64),
        stamp_ns=np.zeros(steps + 1, np.int64),
        images={"wrist": np.zeros(shape, np.uint8)} if pictures else {},
    )  # fmt: skip


def test_demonstrations_that_succeeded_are_not_worth_failing_for_ever(tmp_path: Path) -> None:
    write_new(tmp_path / "demos", TOLD, [succeeding(3) for _ in range(2)])
    told = rings(-1.0, prior=PriorConfig(run=str(tmp_path / "demos")))
    assert returns(told.prior) == [0.81, 0.9, 1.0] * 2


def test_an_episode_that_a_person_calls_a_success_is_not_worth_failing_for_ever() -> None:
    told = rings(-1.0)
    take(told, *(step("a", k, last=k == 2) for k in range(3)), Ended(("a", 0)))
    assert returns(told.steps) == [-10.0] * 3
    take(told, Changed(("a", 0), 2, Outcome(1.0, True, False, True, True, "")))
    take(told, *(step("a", k, episode=1, last=k == 2) for k in range(3)), Ended(("a", 1)))
    assert returns(told.steps)[:3] == [0.81, 0.9, 1.0]


def test_returns_of_two_robots_and_of_an_episode_given_up_are_not_mixed() -> None:
    told = rings(0.0)
    for k in range(3):
        take(told, step("a", k, last=k == 2), step("b", k, reward=float(k == 2), last=k == 2))
    take(told, Ended(("a", 0)), Ended(("b", 0)))
    assert returns(told.steps) == [0.0, 0.0, 0.0, 0.81, 0.9, 1.0]
    told = rings(0.0)
    take(told, *(step("a", k) for k in range(3)), Ended(("a", 0)))
    paid = (step("a", k, episode=1, reward=float(k == 2), last=k == 2) for k in range(3))
    take(told, *paid, Ended(("a", 1)))
    assert returns(told.steps) == [0.0, 0.0, 0.0, 0.81, 0.9, 1.0]


def test_returns_beside_the_pictures_of_a_data_set(tmp_path: Path) -> None:
    """Refused by torch: with pictures there is room for a frame behind each episode."""
    with_wrist = replace(TOLD, images={"wrist": (16, 16, 3)})
    write_new(tmp_path / "demos", with_wrist, [succeeding(3, pictures=True) for _ in range(2)])
    wrist = GroupSpec(shape=(1, 16, 16, 3), dtype=torch.uint8, stack=1)
    spec = replace(SPEC, groups={**SPEC.groups, "image/wrist": wrist})
    groups = ("actor", "image/wrist")
    own = ReplayBuffer(spec, groups, capacity=10, gamma=0.9)
    wanted = MonteCarloReturns(failure_reward=-1.0, online=True)
    config = PriorConfig(run=str(tmp_path / "demos"))
    prior = open_prior(config, own, spec, groups, seed=0, returns=wanted)
    assert returns(prior.replay) == [0.81, 0.9, 1.0] * 2


def test_pictures_of_a_run_that_lie_elsewhere_than_its_rows_are_refused(tmp_path: Path) -> None:
    stored = opened(run_that_saw(tmp_path, 9)[0]).replay
    one = ReplayBuffer(replace(WORLD, num_envs=1), ("actor", FRONT), capacity=100, gamma=0.5)
    with pytest.raises(ConfigError, match=r"pictures of 4 envs, .* make a data set of episodes"):
        one.copy_frames(stored)
