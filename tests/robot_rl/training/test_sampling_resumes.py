"""What is drawn, and how it is weighed, goes on where a run was interrupted, bit for bit."""

from typing import Any

import pytest
import torch

from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.core.errors import ConfigError
from robot_rl.core.mirror import EnvMirror, SignedPermutation
from robot_rl.training.config import Symmetry
from tests.fakes import ToyEnv
from tests.robot_rl.training.loop import Loop, ends_as_if_uninterrupted


class SymmetricToy(ToyEnv):
    """Toy worlds that say of themselves that they have a left and a right."""

    def mirror(self) -> EnvMirror:
        return EnvMirror(
            groups={
                "actor": SignedPermutation((1, 0, 2, 3), (1.0, 1.0, -1.0, 1.0)),
                "critic": SignedPermutation.signs(1, -1, 1, -1, 1, -1),
            },
            action=SignedPermutation((1, 0), (-1.0, -1.0)),
        )


class Watches:
    """A learner whose meals are remembered."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner
        self.eaten: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def update(self, batch: Any) -> Any:
        self.eaten.append(batch)
        return self._learner.update(batch)


def test_every_minibatch_of_a_symmetric_run_holds_both_halves(tmp_path):
    loop = Loop(
        tmp_path, wrap=Watches, make_env=SymmetricToy, symmetry=Symmetry.augment, total_steps=80
    )
    loop.trainer.run()
    learner = loop.trainer.learner
    assert isinstance(learner, Watches)
    assert len(learner.eaten) == 10 * 2
    for batch in learner.eaten:
        one, image = batch.action[0::2], batch.action[1::2]
        assert len(one) == len(image) == 4
        assert torch.equal(image, -one.flip(-1))
        assert torch.equal(batch.obs["actor"][1::2, 2], -batch.obs["actor"][0::2, 2])
        assert torch.equal(batch.reward[1::2], batch.reward[0::2])


@pytest.mark.slow
def test_a_symmetric_run_resumes_bit_equal(tmp_path):
    ends_as_if_uninterrupted(tmp_path, [60], make_env=SymmetricToy, symmetry=Symmetry.augment)


def test_worlds_without_left_and_right_are_refused_in_words(tmp_path):
    with pytest.raises(ConfigError, match=r"describes none: choose training\.symmetry=none"):
        Loop(tmp_path, symmetry=Symmetry.augment)


@pytest.mark.slow
def test_a_run_with_priorities_resumes_bit_equal(tmp_path):
    state = ends_as_if_uninterrupted(tmp_path, [52, 120], replay=ReplayConfig(priority=0.6))
    assert len(torch.unique(state["next batch"]["weight"])) > 10  # priorities were at work
