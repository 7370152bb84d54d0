"""Exported policies of Gymnasium environments: what they refuse, and damage that is found."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from policies.bundle import SEALED_FILES, load_bundle, seal
from policies.env_policy import EnvPolicySpec, load_policy
from policies.export import export_env_policy
from robot_rl.core.errors import (
    BundleError,
    ConfigError,
    NonFiniteError,
    ShapeError,
    StorageError,
)

SPEC = {
    "environment": "Any-v0", "observation_shape": [2, 3], "action_shape": [2],
    "action_dtype": "float32", "low": [-2.0, 0.0], "high": [2.0, 10.0],
}  # fmt: skip


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 2)

    def forward(self, obs):
        return self.linear(obs["actor"]).tanh()


@pytest.fixture
def folder(tmp_path):
    seen = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
    return export_env_policy(
        tmp_path / "policy", policy=Actor(), spec=EnvPolicySpec(**SPEC), observations=seen,
        provenance={"seed": 3},
    )  # fmt: skip


def test_actions_are_those_of_torch_within_the_bounds_of_the_environment(folder):
    policy, actor = load_policy(folder), Actor()
    for seed in range(20):
        seen = 3 * np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
        unit = actor({"actor": torch.from_numpy(seen).reshape(1, 6)})[0].detach().numpy()
        expected = np.array([2 * unit[0], 5 + 5 * unit[1]], np.float32)
        assert policy(seen) == pytest.approx(expected, abs=1e-5)
        assert policy(seen.tolist()).dtype == np.float32
    assert policy.spec == EnvPolicySpec(**SPEC)


def test_other_observations_are_refused(folder):
    policy = load_policy(folder)
    with pytest.raises(ShapeError, match=r"shape \(2, 3\), as 'Any-v0' has it, got \(6,\)"):
        policy(np.zeros(6))
    with pytest.raises(NonFiniteError, match="no number"):
        policy(np.full((2, 3), np.nan))
    wrongs: list[Any] = [(np.zeros((2, 3)), {}), {"a": 1}, "text"]
    for wrong in wrongs:
        with pytest.raises(ShapeError, match=r"env.reset\(\) gives an observation and infos"):
            policy(wrong)
    with pytest.raises(ShapeError, match=r"expected shape \(N, 6\), got \(5,\)"):
        policy.actions(np.zeros(5))
    assert policy.actions(np.zeros((2, 6), np.float64)).shape == (2, 2)


def test_what_is_for_a_robot_and_what_is_not_name_each_other(folder):
    with pytest.raises(BundleError, match="of a Gymnasium environment, not of a robot"):
        load_bundle(folder)
    with pytest.raises(BundleError, match="the policy of a robot; load_bundle reads it"):
        load_policy("zoo:panda-reach")
    with pytest.raises(BundleError, match="is not a folder"):
        load_policy("nowhere")


def sealed_again(folder, golden=None, onnx=None, **changed):
    """The folder with other contents, sealed as if it had been written so."""
    content = json.loads((folder / "spec.json").read_text())
    if golden is not None:
        np.savez(folder / "golden.npz", **golden)
    if onnx is not None:
        (folder / "policy.onnx").write_bytes(onnx)
    files = {name: (folder / name).read_bytes() for name in SEALED_FILES}
    policy = changed.pop("policy", {**content["policy"], **changed})
    (folder / "spec.json").write_bytes(seal(policy, files))


@pytest.mark.parametrize("policy", [None, [], "x"])
@pytest.mark.parametrize("load", [load_bundle, load_policy])
def test_a_spec_that_is_no_object_is_refused_as_a_bundle_that_is_none(folder, load, policy):
    sealed_again(folder, policy=policy)
    with pytest.raises(BundleError, match="policy: expected an object"):
        load(folder)


@pytest.mark.parametrize(
    ("observations", "actions", "told"),
    [
        ((0, 6), (0, 2), "observations"),
        ((8, 6), (5, 2), r"actions \(5, 2\), expected \(8, 2\)"),
        ((8, 5), (8, 2), r"observations \(8, 5\)"),
        ((8, 6), (8, 2), "recorded actions come back"),
    ],
)
def test_recordings_of_another_policy_are_refused(folder, observations, actions, told):
    golden = {"observation": np.ones(observations, np.float32), "action": np.zeros(actions)}
    sealed_again(folder, golden=golden)
    with pytest.raises(BundleError, match=told):
        load_policy(folder)


def test_a_network_with_another_number_of_actions_is_refused(folder, tmp_path):
    spec = EnvPolicySpec(**{**SPEC, "action_shape": [1], "low": [0.0], "high": [1.0]})

    class One(Actor):
        def forward(self, obs):
            return super().forward(obs)[:, :1]

    seen = np.zeros((4, 6), np.float32)
    other = export_env_policy(
        tmp_path / "one", policy=One(), spec=spec, observations=seen, provenance={}
    )
    sealed_again(folder, onnx=(other / "policy.onnx").read_bytes())
    with pytest.raises(BundleError, match="expected 2 actions"):
        load_policy(folder)


def test_names_that_cannot_be_read_again_or_written_are_refused(tmp_path):
    seen, spec = np.zeros((4, 6), np.float32), EnvPolicySpec(**SPEC)
    given = {"policy": Actor(), "spec": spec, "observations": seen, "provenance": {}}
    with pytest.raises(BundleError, match="did not finish"):
        export_env_policy(tmp_path / "mine.partial", **given)
    with pytest.raises(StorageError, match="too long"):
        export_env_policy(tmp_path / ("x" * 300), **given)
    with pytest.raises(ConfigError, match="expected the folder of a bundle"):
        load_policy(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["policy.onnx", "golden.npz", "provenance.json", "spec.json"])
def test_damage_is_found_wherever_it_is(folder, name):
    raw = bytearray((folder / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (folder / name).write_bytes(raw)
    with pytest.raises(BundleError, match="damaged"):
        load_policy(folder)


def test_an_older_one_is_replaced_and_another_folder_is_not(folder, tmp_path):
    before = (folder / "spec.json").read_text()
    spec = EnvPolicySpec(**{**SPEC, "high": [3.0, 10.0]})
    seen = np.zeros((4, 6), np.float32)
    export_env_policy(folder, policy=Actor(), spec=spec, observations=seen, provenance={})
    assert (folder / "spec.json").read_text() != before
    assert json.loads((folder / "spec.json").read_text())["policy"]["high"] == [3.0, 10.0]
    (tmp_path / "mine").mkdir()
    with pytest.raises(BundleError, match="is not a policy bundle; give another path"):
        export_env_policy(
            tmp_path / "mine", policy=Actor(), spec=spec, observations=seen, provenance={}
        )
    (folder / "keep.txt").write_text("mine")
    with pytest.raises(BundleError, match=r"holds keep\.txt beside a policy bundle"):
        export_env_policy(folder, policy=Actor(), spec=spec, observations=seen, provenance={})
    assert (folder / "keep.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"low": [0.0]}, "expected 2 bounds"),
        ({"action_dtype": "int64"}, "expected one of float16, float32, float64, got 'int64'"),
        ({"observation_shape": [0]}, "expected up to 32 axes and 1,000,000 entries"),
        ({"observation_shape": [-1, -3]}, "observation_shape: expected up to 32 axes"),
        ({"observation_shape": [10**4, 10**4]}, "expected up to 32 axes and 1,000,000 entries"),
        ({"action_shape": [1] * 40}, "action_shape: expected up to 32 axes"),
        ({"choices": 1}, "choices: expected 2 to 1,000,000, got 1"),
        ({"choices": 2}, r"a choice has no bounds, the shape \[\] and the type int64; got 2"),
        ({"low": [2.0, 0.0], "high": [-2.0, 1.0]}, "every bound of an action below its upper"),
    ],
)
def test_specs_that_mean_nothing_are_refused(changed, told):
    with pytest.raises(ConfigError, match=told):
        EnvPolicySpec(**{**SPEC, **changed})
