"""Which steps are captured and which are computed; a tape stands for the graph of a GPU."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from robot_rl.core.env import EnvSpec
from robot_rl.core.learner import Learner, Phase
from robot_rl.core.transition import Batch
from robot_rl.learners.cuda_graphs import CUDAGraphRecorder, CUDAGraphs, Replay, UpdateResult
from robot_rl.learners.optimization import ScheduleConfig
from robot_rl.learners.sac import SAC
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied, random_batch, small_sac
from tests.robot_rl.learners.small_offline import small_cql
from tests.robot_rl.learners.tape import TapeRecorder


class Refusing:
    """Captures nothing; counts how often it was asked to."""

    def __init__(self) -> None:
        self.asked = 0

    def warm_up(self, step: Callable[[], UpdateResult]) -> UpdateResult:
        return step()

    def capture(self, step: Callable[[Batch], UpdateResult], batch: Batch) -> Replay:
        self.asked += 1
        try:
            raise RuntimeError("operation not permitted when stream is capturing\nSee the manual")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")


def spec_of(device: str = "cpu") -> EnvSpec:
    return ToyEnv(LinearWorld(), 4, device=torch.device(device)).spec


def learners(
    make: Callable[..., SAC] = small_sac, device: str = "cpu", **settings: Any
) -> tuple[SAC, SAC, EnvSpec]:
    """The same learner twice: one that may capture, one that computes everything."""
    spec = spec_of(device)
    settings = {"compile": False, **settings}
    return make(spec, **settings), make(spec, capture=False, **settings), spec


def batch_of(learner: Learner, spec: EnvSpec, seed: int, **extra: Any) -> Batch:
    return random_batch(spec, learner.samples_per_update, seed, **extra)


def test_what_cannot_be_captured_is_said_once_and_computed(caplog):
    learner, plain, spec = learners()
    recorder = Refusing()
    learner.cuda_graphs.record_with(recorder)
    with caplog.at_level(logging.WARNING):
        for seed in range(8):
            batch = batch_of(learner, spec, seed)
            assert_same(learner.update(batch), plain.update(batch))
    assert recorder.asked == 1
    (told,) = caplog.messages
    assert "could not be captured" in told
    assert told.endswith("not permitted when stream is capturing"), "the cause, in one line"
    assert_same(learner.state_dict(), plain.state_dict())


def test_batches_of_another_size_or_with_other_groups_are_captured_on_their_own():
    learner, plain, spec = learners()
    learner.cuda_graphs.record_with(TapeRecorder())
    for seed in range(6):
        for rows in (8, 5):
            batch = random_batch(spec, rows, seed)
            assert_same(learner.update(batch), plain.update(batch))
    assert learner.cuda_graphs.captures == 2


def test_combinations_without_end_are_computed_beyond_a_number():
    steps = CUDAGraphs(TapeRecorder())
    learner, _, spec = learners()
    batch = batch_of(learner, spec, 0)

    def step(batch: Batch, shift: float) -> UpdateResult:
        return UpdateResult({"shift": batch.reward.sum() + shift}, {}, batch.reward)

    for shift in range(30):
        for _ in range(5):
            metrics, _, _ = steps.run(step, batch, float(shift))
            assert metrics["shift"] == batch.reward.sum() + shift
    assert steps.captures == 16


@pytest.mark.parametrize("saved_on_a_gpu", [False, True])
def test_a_state_from_another_kind_of_device_leaves_adam_as_it_is_here(saved_on_a_gpu):
    learner, plain, spec = learners()
    learner.update(batch_of(learner, spec, 0))
    state = copied(learner.state_dict())
    for name in ("actor_optimizer", "critic_optimizer"):
        for group in state[name]["param_groups"]:
            assert group["capturable"] is False
            group["capturable"] = saved_on_a_gpu
    plain.load_state_dict(state)
    assert_same(plain.state_dict(), learner.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "offline", "online", "expected"),
    [
        # A penalty that fades is computed until it has ended.
        ({"conservatism": {"weight": 5.0, "online": False, "fade_updates": 6}}, 5, 12,
         {4: 1, 9: 0, 16: 1}),
        # An actor that steps more often offline is captured anew at the switch.
        ({"actor_interval": 2, "lr_schedule": ScheduleConfig(decay=20, end=0.1)}, 6, 14,
         {19: 2}),
    ],
)  # fmt: skip
def test_what_an_offline_phase_does_otherwise_is_captured_on_its_own(
    settings, offline, online, expected
):
    learner, plain, spec = learners(small_cql, **settings)
    learner.cuda_graphs.record_with(TapeRecorder())
    captures: list[int] = []
    for seed, phase in enumerate([Phase.offline] * offline + [Phase.online] * online):
        for one in (learner, plain):
            one.begin_phase(phase)
        batch = batch_of(learner, spec, seed)
        assert_same(learner.update(batch), plain.update(batch))
        captures.append(learner.cuda_graphs.captures)
    assert {update: captures[update] for update in expected} == expected
    assert_same(learner.state_dict(), plain.state_dict())


def test_on_the_cpu_and_with_several_processes_nothing_is_captured():
    learner, _, spec = learners()
    for seed in range(8):
        learner.update(batch_of(learner, spec, seed))
    assert learner.cuda_graphs.captures == 0


@pytest.mark.gpu
def test_on_a_gpu_graphs_are_the_default_and_can_be_declined():
    learner, plain, spec = learners(device="cuda")
    for seed in range(8):
        for one in (learner, plain):
            one.update(batch_of(one, spec, seed))
    assert learner.cuda_graphs.captures == 1
    assert plain.cuda_graphs.captures == 0


@pytest.mark.gpu
def test_a_step_that_waits_for_the_gpu_is_computed_and_draws_what_it_would_have_drawn():
    device = torch.device("cuda")
    generator, other = (torch.Generator(device).manual_seed(3) for _ in range(2))
    steps = CUDAGraphs(CUDAGraphRecorder(device, [generator]))
    learner, _, spec = learners(device="cuda")
    batch = batch_of(learner, spec, 0)

    def step(batch: Batch) -> UpdateResult:
        noise = torch.randn(4, generator=generator, device=device)
        assert float(noise.sum()) < 1e9  # waits
        return UpdateResult({"noise": noise.sum()}, {}, batch.reward)

    stream = torch.cuda.current_stream()
    for _ in range(6):
        metrics, _, _ = steps.run(step, batch)
        assert metrics["noise"] == torch.randn(4, generator=other, device=device).sum()
    assert steps.captures == 0
    assert torch.cuda.current_stream() == stream
