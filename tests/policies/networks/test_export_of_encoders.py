"""A bundle holds the student with its encoder, and nothing that only learning needed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from policies.bundle import load_bundle, replay
from policies.export import export_bundle
from policies.networks.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.networks.inputs import EncoderConfig, EncoderKind
from robot_rl.core.env import EnvSpec, GroupSpec, TermSpec
from robot_rl.core.observation import TermConfig
from robot_rl.learners.distill import Distill, DistillConfig
from robot_rl.learners.estimation import EstimationConfig
from tests.fakes import CPU

Arguments = Callable[..., dict[str, Any]]
FRAMES = 5
TERMS = [
    TermConfig(term="position_error_w"),
    TermConfig(term="linear_velocity_w", history=FRAMES),
    TermConfig(term="last_action", history=FRAMES),
]
LAYOUT = [
    TermSpec(name="position_error_w", width=3),
    TermSpec(name="linear_velocity_w", width=3, history=FRAMES),
    TermSpec(name="last_action", width=4, history=FRAMES),
]
SIZE = 3 + FRAMES * (3 + 4)

pytestmark = pytest.mark.slow  # each export takes a second or more


def make_student(kind: EncoderKind) -> GaussianActor:
    torch.manual_seed(0)
    encoder = EncoderConfig(kind=kind, hidden=[6], latent=3, estimate=["velocity"])
    config = GaussianActorConfig(hidden=[8], encoder=encoder)
    student = GaussianActor(config, SIZE, 4, terms=LAYOUT, estimated=2)
    student.update_statistics({"actor": 2 * torch.randn(64, SIZE) + 1})
    return student


@pytest.mark.parametrize("kind", [EncoderKind.mlp, EncoderKind.conv])
def test_a_bundle_fills_and_resets_its_history_and_acts_as_torch_does(kind, tmp_path, arguments):
    folder = export_bundle(tmp_path / "b", **arguments(policy=make_student(kind), terms=TERMS))
    with np.load(folder / "golden.npz") as archive:
        golden = dict(archive)
    got = replay(load_bundle(folder, num_robots=4), golden)
    np.testing.assert_allclose(got["action"], golden["action"], atol=1e-5)
    frames = golden["observation"][:, 1, 3 : 3 + 3 * FRAMES].reshape(-1, FRAMES, 3)
    start = int(golden["reset"][:, 1].nonzero()[0][-1])
    assert start > FRAMES
    assert (frames[start] == frames[start, :1]).all()  # filled with the first frame
    assert (frames[start + 2, :3] == frames[start, :1]).all()
    assert (frames[start + 2, 3:] != frames[start, :1]).any()


def test_neither_teacher_nor_decoder_is_in_the_bundle(tmp_path, arguments):
    privileged = (TermSpec(name="velocity", width=2), TermSpec(name="plant", width=5))
    groups = {
        "actor": GroupSpec(shape=(SIZE,), terms=tuple(LAYOUT)),
        "critic": GroupSpec(shape=(7,), terms=privileged),
    }
    spec = EnvSpec(num_envs=1, device=CPU, groups=groups, action_size=4, control_dt=0.05)
    teacher = GaussianActor(GaussianActorConfig(groups=["critic"], hidden=[99]), 7, 4)
    config = DistillConfig(
        actor=make_student(EncoderKind.mlp).config, estimation=EstimationConfig(next_obs=True)
    )
    learner = Distill(config, spec, teacher=teacher, seed=0)
    student, estimation = learner.actor, learner.estimation
    assert estimation is not None
    kept = estimation.parts()["estimator"].parameters()
    assert len(kept) > len(list(student.network.parameters())) / 2
    folder = export_bundle(tmp_path / "b", **arguments(policy=learner.policy(), terms=TERMS))
    graph = onnx.load(folder / "policy.onnx").graph
    weights = sorted(tuple(t.dims) for t in graph.initializer if len(t.dims) == 2)
    own = [tuple(p.shape) for p in student.parameters() if p.ndim == 2]
    assert [sorted(shape) for shape in weights] == sorted(sorted(shape) for shape in own)
    assert [value.name for value in graph.input] == ["actor"]
