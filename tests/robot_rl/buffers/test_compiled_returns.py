"""Samples by the compiled library beside those of PyTorch operations, over random rings."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.buffers import compiled_returns
from robot_rl.buffers.compiled_returns import find_gather
from robot_rl.buffers.minibatches import Minibatches
from robot_rl.buffers.priorities import ReplayConfig
from robot_rl.buffers.replay import ReplayBuffer
from robot_rl.core import native
from robot_rl.core.learner import MonteCarloReturns
from robot_rl.core.transition import Batch
from tests.robot_rl.buffers.story import Story

CPU = torch.device("cpu")
STEPS, WORLDS = 40, 3
SIZES = (1, 2, 7, 64, 257)
"""Samples of a batch; 2 are fewer than those that are on their way at once."""


def random_story(terms: int, steps: int = STEPS) -> Story:
    """Experience with ends and seams, whose rewards and weights have all digits."""
    generator = torch.Generator().manual_seed(terms)
    shape = (steps, WORLDS, terms) if terms else (steps, WORLDS)
    chance = torch.rand(3, steps, WORLDS, generator=generator)
    weights = torch.randn(2, terms, generator=generator).tolist()
    return Story(
        reward=torch.randn(shape, generator=generator),
        terminated=chance[0] < 0.1,
        truncated=(chance[1] < 0.1) & (chance[0] >= 0.1),
        valid=chance[2] > 0.1,
        gamma=0.97,
        weights={0: weights[0], steps // 2: weights[1]} if terms else {},
    )


def pair(told: Story, **settings: Any) -> tuple[ReplayBuffer, ReplayBuffer]:
    """The same ring twice: compiled, and not."""
    one, two = (told.tell(told.replay(**settings, compile=compile)) for compile in (True, False))
    return one, two


def tensors_of(batch: Batch) -> dict[str, Tensor]:
    groups = {f"obs/{name}": group for name, group in batch.obs.items()}
    following = {f"next_obs/{name}": group for name, group in batch.next_obs.items()}
    own = {n: getattr(batch, n) for n in ("action", "reward", "discount", "weight")}
    return {**groups, **following, **own, **batch.extra}


def assert_equal(compiled: Batch, plain: Batch) -> None:
    """To the last bit, the sign of a zero included; rewards are sums of terms by any BLAS."""
    ours, theirs = tensors_of(compiled), tensors_of(plain)
    assert ours.keys() == theirs.keys()
    for name, other in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (other.dtype, other.shape), name
        if name == "reward":
            torch.testing.assert_close(ours[name], other, rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(bits(ours[name]), bits(other)), name
        assert ours[name].is_contiguous(), name


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.int32) if tensor.dtype is torch.float32 else tensor


@pytest.mark.parametrize("capacity_steps", [STEPS + 1, 17], ids=["not full", "wrapped"])
@pytest.mark.parametrize("chunks", [False, True], ids=["single", "chunks"])
@pytest.mark.parametrize("terms", [0, 1, 2, 6, 11])
@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_a_sample_is_the_same_to_the_last_bit(n_step, terms, chunks, capacity_steps):
    told = random_story(terms)
    one, two = pair(told, n_step=n_step, chunks=chunks, capacity=capacity_steps * WORLDS)
    for size in SIZES:
        assert_equal(one.sample(size), two.sample(size))
    assert_equal(one.strided_sample(1000), two.strided_sample(1000))  # every row
    assert torch.equal(one.generator.get_state(), two.generator.get_state())


@pytest.mark.parametrize(("n_step", "chunks"), [(1, False), (1, True), (5, True)])
def test_steps_in_which_a_person_acted_are_told_where_they_are_asked_for(n_step, chunks):
    acted = torch.rand(STEPS, WORLDS, generator=torch.Generator().manual_seed(3)) < 0.3
    told = replace(random_story(2), intervened=acted)
    one, two = pair(told, n_step=n_step, chunks=chunks, interventions=True)
    batch = one.strided_sample(1000)  # every row, in order
    assert_equal(batch, two.strided_sample(1000))
    assert torch.equal(batch.extra["intervened"], (acted & told.valid).flatten())
    assert "intervened" not in pair(told, n_step=n_step)[0].sample(4).extra


@pytest.mark.parametrize("n_step", [1, 5])
def test_rewards_are_valued_by_the_newest_weights(n_step):
    one, two = pair(random_story(6), n_step=n_step)
    other, _ = pair(random_story(6), n_step=n_step)
    for replay in (one, two):
        replay.set_reward_weights(torch.tensor([3.0, 0.0, -1.0, 0.1, 0.2, 0.3]))
    assert_equal(one.sample(64), two.sample(64))
    for replay in (one, two):
        replay.share_weights(other)
    other.set_reward_weights(torch.full((6,), 0.7))
    assert_equal(one.sample(64), two.sample(64))


@pytest.mark.parametrize("steps", [1, 2, 16, 17, 18, 33, 34, 35])
def test_a_ring_may_begin_anywhere(steps):
    one, two = pair(random_story(2, steps), n_step=3, capacity=17 * WORLDS)
    assert_equal(one.strided_sample(1000), two.strided_sample(1000))


def test_prioritized_samples_are_the_same():
    settings = {"config": ReplayConfig(priority=0.6), "n_step": 3, "capacity": 17 * WORLDS}
    one, two = pair(random_story(2), **settings)
    for _ in range(3):
        batches = [replay.sample(64, progress=0.5) for replay in (one, two)]
        assert_equal(*batches)
        for replay, batch in zip((one, two), batches, strict=True):
            replay.set_priorities(batch.extra["index"], batch.reward)


def test_returns_that_were_reached_belong_to_the_same_rows():
    wanted = MonteCarloReturns(failure_reward=0.0, online=True)
    one, two = pair(random_story(2), n_step=3, returns=wanted, capacity=17 * WORLDS)
    assert_equal(one.sample(64), two.sample(64))


def test_minibatches_that_are_drawn_at_once_are_the_same():
    one, two = pair(random_story(6), n_step=5)
    drawn = [list(Minibatches(replay, 32).draw(4, 0.0)) for replay in (one, two)]
    for ours, theirs in zip(*drawn, strict=True):
        assert_equal(ours, theirs)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_a_number_stays_visible(bad):
    told = random_story(2)
    told.reward[told.valid & (torch.rand(STEPS, WORLDS) < 0.1)] = bad
    one, two = pair(told, n_step=3)
    ours, theirs = one.strided_sample(1000).reward, two.strided_sample(1000).reward
    assert not theirs.isfinite().all()
    torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.usefixtures("nothing_compiled")
class TestWithoutTheLibrary:
    def test_compiling_can_be_forbidden(self):
        method = "PyTorch operations (learner.compile=false)"
        assert find_gather(CPU, False) == (None, method)

    def test_a_missing_compiler_is_named(self, monkeypatch):
        monkeypatch.setenv("CXX", "no-such-compiler")
        functions, method = find_gather(CPU, True)
        assert functions is None
        assert "no-such-compiler" in method
        one, two = pair(random_story(2), n_step=3)
        assert torch.equal(one.sample(64).reward, two.sample(64).reward)

    def test_a_gpu_is_left_to_pytorch(self):
        assert find_gather(torch.device("cuda"), True) == (None, "PyTorch operations")

    def test_the_library_is_built_when_it_is_missing(self):
        functions, method = find_gather(CPU, True)
        assert functions is not None
        assert method.startswith("compiled (")
        assert native.library_path(compiled_returns.SOURCE).exists()

    def test_a_damaged_library_is_built_anew(self):
        path = native.library_path(compiled_returns.SOURCE)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half a file")
        functions, _ = find_gather(CPU, True)
        assert functions is not None
        assert path.stat().st_mode & 0o777 == 0o755  # others may read it
