"""Envs that step in a thread while the learner updates."""

import threading
import time

import pytest
import torch

from policies.networks.mlp import is_exact
from robot_rl.core.errors import NonFiniteError, ShapeError
from tests.equality import assert_same
from tests.fakes import ToyEnv, small_sac
from tests.robot_rl.training.loop import Loop, future_of

steps: list[tuple[threading.Thread, bool]] = []
"""Thread of every step, and whether it had gradients."""


class Watched(ToyEnv):
    """Envs that tell which thread steps them, and may take their time."""

    seconds = 0.0

    def step(self, action):
        steps.append((threading.current_thread(), torch.is_grad_enabled()))
        time.sleep(self.seconds)
        return super().step(action)


class Slow(Watched):
    seconds = 0.01


broken = threading.Event()


class Broken(Watched):
    def step(self, action):
        if self.steps > 20:
            broken.set()
            raise ShapeError("the world has lost its shape")
        return super().step(action)


def test_result_does_not_depend_on_who_is_faster(tmp_path):
    quick, slow = (
        Loop(tmp_path / env.__name__, make_env=env, total_steps=160) for env in (Watched, Slow)
    )
    assert quick.trainer.run()
    assert slow.trainer.run()
    assert_same(future_of(slow), future_of(quick))
    thread, gradients = steps[-1]
    assert thread is not threading.current_thread()
    assert not gradients


def test_newest_step_is_learned_from_one_step_later(tmp_path):
    """That is the only difference from one after the other."""
    rows: dict[bool, list[int]] = {}
    for overlap in (True, False):
        loop = Loop(tmp_path / str(overlap), make_env=Watched, overlap=overlap, total_steps=80)
        seen = rows[overlap] = []
        update = loop.learner.update
        loop.learner.update = lambda batch, loop=loop, seen=seen, update=update: (
            seen.append(len(loop.trainer.replay)) or update(batch)
        )
        loop.trainer.run()
    assert rows[True][:4] == [40, 40, 44, 44]
    assert rows[False][:4] == [40, 40, 44, 44]
    assert len(rows[False]) == len(rows[True]) + 2


def test_envs_that_must_not_are_stepped_by_the_same_thread(tmp_path):
    loop = Loop(tmp_path, make_env=Watched, overlap=False, total_steps=80)
    loop.trainer.run()
    assert steps[-1][0] is threading.current_thread()


@pytest.mark.skipif(not is_exact(), reason="oneDNN rounds here, so that no product goes to it")
@pytest.mark.parametrize("compile", [False, True])
def test_envs_wait_for_updates_that_change_where_products_are_computed(tmp_path, compile):
    """The last digits of the envs' own products would depend on who is faster."""
    wide = {"hidden": [128, 128]}
    loop = Loop(
        tmp_path, make_env=Watched, total_steps=44,
        make_learner=lambda spec, seed: small_sac(
            spec, seed, actor=wide, critic=wide, batch_size=256, compile=compile
        ),
    )  # fmt: skip
    loop.trainer.run()
    compiled = loop.learner.compiled_step is not None
    assert loop.learner.changes_settings is not compiled
    assert (steps[-1][0] is threading.current_thread()) is not compiled


def test_error_of_the_envs_ends_the_run_with_its_own_words(tmp_path):
    loop = Loop(tmp_path, make_env=Broken)
    with pytest.raises(ShapeError, match="lost its shape"):
        loop.trainer.run()


def test_after_an_error_of_the_learner_no_step_is_under_way(tmp_path):
    loop = Loop(tmp_path, make_env=Slow)

    def fail(batch):
        raise NonFiniteError("the learner fails")

    loop.learner.update = fail
    with pytest.raises(NonFiniteError, match="the learner fails"):
        loop.trainer.run()
    before = loop.env.steps
    time.sleep(0.05)
    assert loop.env.steps == before


def test_two_errors_of_one_step_are_both_said(tmp_path, caplog):
    loop = Loop(tmp_path, make_env=Broken)
    broken.clear()

    def fail(batch):
        time.sleep(0.002)  # the envs' step has ended
        if broken.is_set():
            raise NonFiniteError("the learner fails")
        return update(batch)

    update, loop.learner.update = loop.learner.update, fail
    with pytest.raises(NonFiniteError, match="the learner fails"):
        loop.trainer.run()
    assert "the envs failed in the same step: the world has lost its shape" in caplog.text


def test_rows_tell_the_policy_that_acted(tmp_path):
    versions: dict[bool, list[int]] = {}
    for overlap in (True, False):
        loop = Loop(tmp_path / str(overlap), overlap=overlap, total_steps=60, random_steps=8)
        loop.trainer.run()
        versions[overlap] = loop.trainer.replay.state_dict(None)["stamps"][:, 1].tolist()
    assert versions[False] == [0, 0, *range(2, 28, 2)]
    assert versions[True] == [0, 0, 0, *range(2, 26, 2)]
