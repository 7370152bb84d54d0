"""A run that begins with the learner of another: what is its own, and what is named as missing."""

from typing import Any

import pytest
import torch

from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError
from robot_rl.learners.sac import ActorStepsConfig
from robot_rl.learners.values import RewardScaling
from robot_rl.training.config import StartCheckpoint, StartConfig
from robot_rl.training.runs.run_folder import RunFolder, RunName
from robot_rl.training.start import load_start, with_own_streams
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, small_flash_sac, small_sac
from tests.robot_rl.learners.small_offline import small_cql
from tests.robot_rl.learners.test_distill import SPEC
from tests.robot_rl.learners.test_distill import make as make_distilled
from tests.robot_rl.training.loop import Loop
from tests.robot_rl.training.test_schedule import run_of


def test_a_part_that_only_this_learner_keeps_is_named_by_its_setting(tmp_path):
    donor = Loop(tmp_path / "donor", total_steps=80)
    donor.trainer.run()
    start = StartConfig(run=run_of(tmp_path / "runs", donor))
    for make, message in [
        (small_cql, "no 'penalty'.*take the learner.conservatism and learner.dynamics_gap of"),
        (scaled, "no 'return'.*take the learner.reward_scale of"),
    ]:
        heir = Loop(tmp_path / make.__name__, start=start, warm_up_steps=24, make_learner=make)
        with pytest.raises(ConfigError, match=message):
            heir.trainer.run()


def scaled(spec: EnvSpec, seed: int) -> Any:
    return small_sac(spec, seed, reward_scale=RewardScaling.running)


def test_random_streams_are_the_new_run_s_own_however_deep_they_lie():
    spec = ToyEnv(LinearWorld(), 3).spec
    donor, heir = small_flash_sac(spec, seed=1), small_flash_sac(spec, seed=2)
    donor.update(random_batch(spec, 8))
    own = heir.state_dict()
    kept = with_own_streams(donor.state_dict(), own)
    assert torch.equal(kept["generator"], own["generator"])
    assert torch.equal(kept["noise"]["generator"], own["noise"]["generator"])
    assert_same(kept["critic"], donor.state_dict()["critic"])


def test_critics_learn_alone_in_the_beginning_of_a_run_that_begins_with_another(tmp_path):
    def patient(spec: EnvSpec, seed: int) -> Any:
        return small_sac(spec, seed, actor_steps=ActorStepsConfig(critic_updates=1_000))

    donor = Loop(tmp_path / "donor", total_steps=80)
    donor.trainer.run()
    done = donor.learner.updates
    start = StartConfig(run=run_of(tmp_path / "runs", donor))
    heir = Loop(
        tmp_path / "heir", total_steps=80, warm_up_steps=24, start=start, make_learner=patient
    )
    heir.trainer.run()
    assert heir.learner.updates > done > 3
    actors = [copied(loop.trainer.learner.policy().state_dict()) for loop in (donor, heir)]
    moved = [n for n in actors[0] if "weight" in n and not torch.equal(actors[0][n], actors[1][n])]
    assert not moved


def test_a_student_that_goes_on_follows_the_teacher_that_is_named_now(tmp_path):
    donor, _ = make_distilled(mixture_updates=4)
    for seed in range(4):
        donor.update(random_batch(SPEC, 8, seed))
    run = RunFolder.create(tmp_path, RunName(task="t", robot="r", learner="l", seed=0), {}, {})
    CheckpointStore(run.checkpoints).save(4, {"learner": donor.state_dict()})
    run.close()
    heir, teacher = make_distilled(mixture_updates=4)
    with torch.no_grad():
        for param in teacher.parameters():
            param.mul_(-1.5)
    named = copied(teacher.state_dict())
    start = StartConfig(run=str(run.path), checkpoint=StartCheckpoint.latest)
    load_start(start, heir)
    assert_same(teacher.state_dict(), named)
    assert_same(heir.actor.state_dict(), donor.actor.state_dict())
    assert (donor.mixture, heir.mixture) == (0.0, 1.0)
