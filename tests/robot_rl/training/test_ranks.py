"""Two processes that train together do what one process with all the worlds and rows does."""

import os
import signal
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.q_ensemble import QEnsemble, QEnsembleConfig
from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import ConfigError, RankError
from robot_rl.core.transition import Batch
from robot_rl.learners.sac import SAC, SACConfig
from robot_rl.training.ranks import (
    Ranks,
    check_same,
    join_ranks,
    pack_step,
    seed_of,
    share_of,
    unpack_step,
)
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, random_batch
from tests.robot_rl.training.forked_ranks import on_ranks

WORLD = LinearWorld(bound=0.9)
WORLDS, ROWS, UPDATES = 8, 32, 20


class NoiseOfAll(GaussianActor):
    """Draws what one process would draw for the rows of all ranks, and keeps its own rows."""

    def __init__(self, spec: Any, rank: int, count: int) -> None:
        super().__init__(
            GaussianActorConfig(hidden=[16]), spec.groups["actor"].shape[0], spec.action_size
        )
        self.rank, self.count = rank, count

    def sample(self, obs: Obs, generator: Any = None) -> tuple[Tensor, Tensor]:
        own = obs["actor"].shape[0]
        rows = slice(self.rank * own, (self.rank + 1) * own)
        every = torch.zeros(own * self.count, obs["actor"].shape[1])
        every[rows] = obs["actor"]
        action, log_prob = super().sample({"actor": every}, generator)
        return action[rows], log_prob[rows]


def learner(ranks: Ranks) -> tuple[SAC, ToyEnv]:
    env = ToyEnv(WORLD, WORLDS, seed=3)
    spec = env.spec
    torch.manual_seed(0)
    actor = NoiseOfAll(spec, ranks.rank, ranks.count)
    critic = QEnsemble(
        QEnsembleConfig(hidden=[16]), "critic", spec.groups["critic"].shape[0], spec.action_size
    )
    config = SACConfig(
        batch_size=ROWS, actor_lr=1e-3, critic_lr=1e-3, max_grad_norm=0.5, actor_interval=2
    )
    sac = SAC(config, spec, seed=0, reduce=ranks.reduce, networks=(actor, critic))
    return sac, env


def rows_of(step: EnvStep, ranks: Ranks) -> EnvStep:
    """The part of a step that a rank's own worlds would have made."""
    count = WORLDS // ranks.count
    return unpack_step(pack_step(step)[ranks.rank * count :][:count], step)


def train(ranks: Ranks) -> dict[str, Tensor]:
    """Everything that twenty updates have made of the same rows and the same worlds."""
    sac, env = learner(ranks)
    check_same(sac.state_dict(), ranks)
    env.reset(seed=1)
    share = ROWS // ranks.count
    for i in range(UPDATES):
        step = env.step(torch.ones(WORLDS, 2) * (-1) ** i)
        sac.observe(ranks.join_step(rows_of(step, ranks)))
        batch: Batch = random_batch(env.spec, ROWS, seed=i)
        sac.update(batch.take(ranks.rank * share, (ranks.rank + 1) * share))
    parts = {"actor": sac.actor, "critic": sac.critic, "target": sac.target_critic}
    found = {"temperature": sac.temperature.value().clone()}
    for name, part in parts.items():
        found |= {f"{name}.{key}": value.clone() for key, value in part.state_dict().items()}
    return found


@pytest.mark.slow
def test_two_ranks_with_half_the_rows_learn_what_one_process_with_all_learns():
    alone = train(Ranks())
    first, second = on_ranks(train)
    assert_same(first, second)  # both hold the same weights, bit for bit
    for name, expected in alone.items():
        if "normalizer" in name:
            assert_same(first[name], expected)  # joined rows, in the same order
        else:
            error = (first[name] - expected).norm() / expected.norm().clamp_min(1e-6)
            # Sums of gradients are rounded in another order.
            assert error < 1e-6, (name, float(error))


@pytest.mark.slow
def test_ranks_sum_gather_and_tell_each_other():
    def work(ranks: Ranks) -> Any:
        return (
            ranks.total(torch.tensor([1.0, ranks.rank])).tolist(),
            ranks.words("word " + "é" * ranks.rank),
            ranks.any(ranks.rank == 1),
            ranks.any(False),
            ranks.first(lambda: ranks.rank),
            ranks.total(torch.zeros(0)).tolist(),
        )

    words = ["word ", "word é", "word éé"]
    expected = [([3.0, 3.0], words, True, False, rank, []) for rank in (0, None, None)]
    assert on_ranks(work, 3) == expected


class Second(Ranks):
    """Rank 1 of 2, for what needs no other process."""

    rank, count = 1, 2


def test_a_process_alone_is_its_own_only_rank(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert len({seed_of(seed, ranks) for seed in range(50) for ranks in (Ranks(), Second())}) == 100
    with join_ranks(1.0) as ranks:
        assert (ranks.rank, ranks.count, ranks.reduce) == (0, 1, None)
        assert ranks.words("a") == ["a"]
        assert ranks.problem("x exploded", 3) == "x exploded"
        assert ranks.first(lambda: 5) == 5
        assert (share_of(7, ranks, "num_envs"), seed_of(3, ranks)) == (7, 3)


def test_what_does_not_divide_evenly_is_refused_with_a_number_that_does():
    assert share_of(8, Second(), "num_envs") == 4
    with pytest.raises(ConfigError, match=r"num_envs=7 was asked of 2 ranks.* such as 6"):
        share_of(7, Second(), "num_envs")


@pytest.mark.slow
def test_a_killed_rank_is_named_by_the_one_that_waits_for_it():
    def work(ranks: Ranks) -> None:
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        ranks.first(lambda: None)

    waiting, killed = on_ranks(work)
    assert killed is None
    assert isinstance(waiting, RankError)
    assert "rank 1 of 2 (process" in str(waiting)
    assert "died; the last checkpoint is intact" in str(waiting)


@pytest.mark.slow
def test_a_rank_that_ends_by_an_error_tells_the_others_why():
    def work(ranks: Ranks) -> None:
        def fail() -> None:
            raise ConfigError("the disk is full")

        ranks.first(fail)

    failed, waiting = on_ranks(work)
    assert isinstance(failed, ConfigError)
    assert str(waiting).startswith("rank 0 of 2 ended: the disk is full; ")


@pytest.mark.slow
def test_other_initial_weights_on_one_rank_are_named():
    for error in on_ranks(lambda r: check_same({"critic": {"a": torch.ones(2) * r.rank}}, r)):
        assert isinstance(error, RankError)
        assert "rank 1 begins with other weights than rank 0 (/critic/" in str(error)


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_after_the_timeout():
    def hanging(ranks: Ranks) -> None:
        hanging_pid = int(ranks.words(str(os.getpid()))[1])
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        if ranks.rank == 1:
            signal.pause()  # until the other has given up
        try:
            ranks.any(False)
        finally:
            os.kill(hanging_pid, signal.SIGTERM)

    waiting, _ = on_ranks(hanging, timeout=5.0)  # it bounds their meeting too
    assert isinstance(waiting, RankError)
    assert "rank 1 of 2 (process" in str(waiting)
    assert "does not answer" in str(waiting)
