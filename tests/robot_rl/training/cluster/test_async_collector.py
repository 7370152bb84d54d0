"""Steps of all worlds from blocks: order, seams, ratio, weights, resume."""

import importlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core.errors import ConfigError
from robot_rl.core.seeding import derive_seed
from robot_rl.training.assembly import assemble_trainer
from robot_rl.training.cluster.async_collector import MAX_REQUESTS, AsyncCollector, RemoteEnv
from robot_rl.training.cluster.remote_collector import (
    Block,
    CollectRequest,
    RemoteCollector,
    Weights,
    weights_of,
)
from robot_rl.training.config import ClusterConfig, TrainerConfig
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.fakes import LinearWorld, ToyEnv, small_sac

SHARE, COLLECTORS, STEPS = 2, 2, 3
WORLD = LinearWorld(bound=0.9, reward_names=("first", "second"))


class LocalFleet:
    """Works off a request when its block is taken; loses a collector when it is told to."""

    def __init__(self, build: Callable[[int], RemoteCollector], count: int) -> None:
        self._build = build
        self._collectors = [build(number) for number in range(count)]
        self._requests: list[deque[tuple[CollectRequest, Weights]]] = [
            deque() for _ in range(count)
        ]
        self._states: list[Mapping[str, Any] | None] = [None] * count
        self._away = [0] * count
        self._seed = 0
        self._weights: Weights = {}
        self.count = count
        self.lost = 0
        self.most_waiting = 0
        self.given: list[tuple[int, CollectRequest]] = []
        self.taken: list[tuple[int, Block]] = []
        self.closed = False

    def lose(self, collector: int, looks: int) -> None:
        """The next `looks` for a collector find none: it died, and another one comes up."""
        self._away[collector] = looks
        self._requests[collector].clear()
        self.lost += 1
        self._collectors[collector] = self._build(collector)
        purpose = f"again {self.lost}"
        self._collectors[collector].begin(derive_seed(self._seed, purpose), self._states[collector])

    def begin(self, seed: int, states: Sequence[Mapping[str, Any] | None]) -> None:
        self._seed, self._states = seed, list(states)
        for number, (collector, state) in enumerate(zip(self._collectors, states, strict=True)):
            collector.begin(derive_seed(seed, f"first {number}") >> 32, state)

    def publish(self, weights: Weights) -> None:
        self._weights = weights

    def request(self, collector: int, request: CollectRequest) -> None:
        self._requests[collector].append((request, self._weights))
        self.given.append((collector, request))
        self.most_waiting = max(self.most_waiting, len(self._requests[collector]))

    def waiting(self, collector: int) -> int:
        return len(self._requests[collector])

    def up(self, collector: int) -> bool:
        self._away[collector] -= 1
        return self._away[collector] < 0

    def take(self, collector: int) -> Block | None:
        block = self._collectors[collector].collect(*self._requests[collector].popleft())
        self.taken.append((collector, block))
        return block

    def wait(self) -> None:
        """The next look may find one."""

    def states(self) -> list[Mapping[str, Any] | None]:
        self._states = [remote_collector.state() for remote_collector in self._collectors]
        return self._states

    def close(self) -> None:
        self.closed = True


def remote_collector(number, learner=small_sac):
    env = ToyEnv(WORLD, SHARE, limit=7, truncation_rate=0.1, seed=10 + number)
    return RemoteCollector(env, lambda seed: learner(env.spec, seed=seed))


def gathered(fleet, learner, *, random_steps=0, capacity=400):
    worlds = RemoteEnv(ToyEnv(WORLD, 1, limit=7), SHARE * fleet.count, fleet)
    replay = ReplayBuffer(worlds.spec, ("actor",), capacity=capacity, gamma=0.9, n_step=3, seed=0)
    return AsyncCollector(
        worlds, learner, replay, random_steps=random_steps, seed=0, block_steps=STEPS
    ), replay


def begun(fleet, learner, steps=0, **settings):
    collector, replay = gathered(fleet, learner, **settings)
    collector.start()
    for _ in range(steps):
        collector.collect()
    return collector, replay


@pytest.fixture
def fleet():
    return LocalFleet(remote_collector, COLLECTORS)


@pytest.fixture
def learner():
    return small_sac(ToyEnv(WORLD, SHARE * COLLECTORS).spec)


def rows_of(replay):
    held = replay.total_steps
    return {name: part[:held] for name, part in replay.layout.split(replay._rows).items()}


def test_rows_of_a_world_follow_each_other_in_time(fleet, learner):
    collector, replay = begun(fleet, learner, 12)
    assert (replay.total_steps, collector.env_steps) == (12, 48)
    for number in range(COLLECTORS):
        worlds = slice(number * SHARE, (number + 1) * SHARE)
        blocks = [block for who, block in fleet.taken if who == number]
        told = torch.cat([torch.tensor(block.obs["actor"][:-1]) for block in blocks])
        after = torch.cat([torch.tensor(block.next_obs["actor"]) for block in blocks])
        paid = torch.cat([torch.tensor(block.fields["reward_terms"]) for block in blocks])
        rows = rows_of(replay)
        assert torch.equal(rows["obs/actor"][:, worlds], told[:12])
        assert torch.equal(rows["next_obs/actor"][:, worlds], after[:12])
        assert torch.equal(rows["reward"][:, worlds], paid[:12])


def test_a_collector_is_never_further_ahead_than_its_orders(fleet, learner):
    collector, _ = gathered(fleet, learner)
    collector.start()
    assert fleet.given == [], "nobody works before the first step is asked for"
    for steps in range(1, 20):
        collector.collect()
        ahead = len(fleet.given) * STEPS * SHARE - collector.env_steps
        assert ahead <= COLLECTORS * (MAX_REQUESTS * STEPS * SHARE + STEPS * SHARE), steps
    assert fleet.most_waiting == MAX_REQUESTS


def test_random_actions_are_ordered_for_as_many_steps_as_asked(fleet, learner):
    begun(fleet, learner, 4 * STEPS, random_steps=2 * STEPS * SHARE * COLLECTORS)
    at_random = [request.at_random for _, request in fleet.given]
    assert at_random == [True] * 4 + [False] * (len(at_random) - 4)
    assert len(at_random) > 6


def test_a_curriculum_follows_the_steps_of_the_whole_run(learner):
    told = []

    class Told(ToyEnv):
        def set_global_step(self, env_steps):
            told.append(env_steps)

    def build(number):
        env = Told(WORLD, SHARE, seed=number)
        return RemoteCollector(
            env, lambda seed: small_sac(env.spec, seed=seed), env.set_global_step
        )

    begun(LocalFleet(build, COLLECTORS), learner, 4 * STEPS)
    block = STEPS * SHARE * COLLECTORS
    assert told == sorted(told)
    assert told[-1] >= block, "steps of all collectors, not of one"


def test_newer_weights_act_and_are_named(fleet, learner):
    collector, replay = gathered(fleet, learner)
    collector.start()
    for version in range(12):
        collector.policy_version = version
        with torch.no_grad():
            for parameter in learner.policy().parameters():
                parameter.fill_(0.01 * version)
        collector.collect()
    versions = replay._stamps[:12, 1].tolist()
    assert versions == sorted(versions)
    assert 0 < versions[-1] <= 11
    assert versions[-1] >= 11 - (MAX_REQUESTS + 1) * STEPS
    newest = fleet._collectors[0]
    used = fleet.taken[-1][1].version
    acting = next(newest._learner.policy().parameters())
    assert torch.allclose(acting, torch.full_like(acting, 0.01 * used))
    lag = collector.statistics()["rollout/updates_behind"]
    assert 0 < lag <= (MAX_REQUESTS + 1) * STEPS


def test_a_lost_collector_leaves_a_seam_and_the_ratio_is_kept(fleet, learner):
    collector, replay = begun(fleet, learner, 5)
    before = replay.total_steps
    fleet.lose(1, looks=4)
    for _ in range(6):
        collector.collect()
    assert collector.env_steps == 11 * SHARE * COLLECTORS
    valid = rows_of(replay)["valid"][..., 0] > 0
    assert valid[:before].all()
    assert valid[before:, :SHARE].all(), "the other one goes on"
    away = ~valid[before:, SHARE:].any(1)
    assert away.sum() == 4
    assert not (valid[:, SHARE:].any(1) ^ valid[:, SHARE:].all(1)).any()
    of_use = int(valid.sum())
    assert of_use - collector.env_steps == collector._surplus < SHARE * COLLECTORS
    told = collector.statistics()
    assert told["rollout/lost_collectors"] == 1
    assert told["rollout/collectors"] == COLLECTORS
    assert told["rollout/invalid_steps"] == 0, "steps that nobody took were not dropped"
    batch = replay.sample(64)
    assert (batch.weight.isfinite()).all()


def test_a_collector_that_begins_anew_explores_in_another_way(learner):
    """What took the place of a lost one drew the same noise again, from its beginning."""
    worlds, acted = remote_collector(0), []
    request = CollectRequest(steps=STEPS, version=0, at_random=False, env_steps=0)
    for seed in (5, 6, 5):
        worlds.begin(5, None)
        worlds.begin(seed, None)
        worlds._obs = {n: torch.zeros(SHARE, *WORLD.groups[n].shape) for n in worlds._groups}
        acted.append(torch.tensor(worlds.collect(request, weights_of(learner)).fields["action"][0]))
    assert torch.equal(acted[0], acted[2])
    assert not torch.isclose(acted[0], acted[1]).any()


def test_episodes_of_the_only_collector_and_its_successor_are_kept_apart(learner):
    fleet = LocalFleet(remote_collector, 1)
    collector, replay = begun(fleet, small_sac(ToyEnv(WORLD, SHARE).spec), STEPS)
    fleet.lose(0, looks=2)
    collector.collect()
    valid = rows_of(replay)["valid"][..., 0] > 0
    assert valid.all(1).tolist() == [True] * STEPS + [False, True]
    assert collector.env_steps == (STEPS + 1) * SHARE


SETTINGS = {
    "total_steps": 160, "random_steps": 24, "updates_per_step": 2, "replay_capacity": 400,
    "evaluation_interval": 80, "evaluation_episodes": 4,
}  # fmt: skip


@pytest.mark.slow
class TestWithTheTrainer:
    def trainer(self, folder, fleet, **settings):
        worlds = RemoteEnv(ToyEnv(WORLD, 1, limit=7), SHARE * COLLECTORS, fleet)
        segments = SegmentStore(folder / "segments")
        self.records = []
        self.learner = small_sac(worlds.spec, n_step=3)
        return assemble_trainer(
            TrainerConfig(**{**SETTINGS, **settings}), env=worlds,
            evaluation_env=ToyEnv(WORLD, 4, limit=7, seed=1), learner=self.learner,
            checkpoints=CheckpointStore(folder / "checkpoints", keep_last=9, segments=segments),
            record=self.records.append, interval_seconds=1e9, seed=0,
            make_collector=partial(AsyncCollector, block_steps=STEPS),
        )  # fmt: skip

    def test_learns_as_often_as_asked_and_goes_on_from_its_checkpoint(self, tmp_path, fleet):
        trainer = self.trainer(tmp_path, fleet)
        assert trainer.run()
        updates = trainer.collector.policy_version
        assert updates == 2 * (160 - 24) // 4 + 2, "two per step, from the last random one on"
        assert [record["step"] for record in self.records] == [80, 160]
        assert all("rollout/return" in record for record in self.records)
        worlds = trainer.env
        with pytest.raises(ConfigError, match=r"cannot be stepped by the learner"):
            worlds.step(torch.zeros(4, 1))

        store = CheckpointStore(tmp_path / "checkpoints", read_only=True)
        again = LocalFleet(remote_collector, COLLECTORS)
        longer = self.trainer(tmp_path, again, total_steps=240)
        longer.load_state_dict(store.load().state)
        assert longer.collector.policy_version == updates
        began = again._collectors[0]._env
        assert isinstance(began, ToyEnv)
        assert began.steps > 0, "worlds go on from what was saved of them"
        before = longer.replay.total_steps
        assert longer.run()
        valid = rows_of(longer.replay)["valid"][..., 0] > 0
        assert not valid[before - 1].any(), "an invalid row lies between old and new episodes"
        assert longer.collector.env_steps == 240
        assert not again.given[0][1].at_random
        assert again.given[0][1].version == updates
        worlds.close()
        assert fleet.closed


def test_shares_are_equal_and_blocks_large_enough():
    with pytest.raises(ConfigError, match=r"answer_seconds must be above 0"):
        ClusterConfig(answer_seconds=float("nan"))
    config = ClusterConfig(collectors=3, rows=100)
    assert (config.share(24), config.steps(24)) == (8, 13)
    assert config.steps(3000) == 1
    with pytest.raises(ConfigError, match=r"num_envs=25 was asked of 3 collectors.*such as 24"):
        config.share(25)


@pytest.mark.slow
def test_more_collectors_than_fit_are_refused(monkeypatch):
    module = importlib.import_module("robot_rl.training.cluster.ray_fleet")  # takes a second
    monkeypatch.setattr(module.ray, "cluster_resources", lambda: {"CPU": 3.0})
    module.check_room(ClusterConfig(collectors=3))
    module.check_room(ClusterConfig(collectors=6, cpus=0.5))
    with pytest.raises(ConfigError, match=r"collectors=4 need 4 CPU, and the cluster has 3; take"):
        module.check_room(ClusterConfig(collectors=4))
    with pytest.raises(ConfigError, match=r"need 1 GPU, and the cluster has 0"):
        module.check_room(ClusterConfig(collectors=1, device="cuda"))
    assert module.last_line(RuntimeError("ray::x()\n  File y\nKeyError: 'z'\n")) == "KeyError: 'z'"
