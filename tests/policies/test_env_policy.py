"""Exported policies of Gymnasium environments: what they refuse, and damage that is found."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from policies.bundle import load_bundle
from policies.env_policy import EnvPolicySpec, load_policy
from policies.export import export_env_policy
from robot_rl.core.errors import BundleError, ConfigError, NonFiniteError, ShapeError

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


def test_what_is_for_a_robot_and_what_is_not_name_each_other(folder):
    with pytest.raises(BundleError, match="of a Gymnasium environment, not of a robot; load_polic"):
        load_bundle(folder)
    with pytest.raises(BundleError, match="the policy of a robot; load_bundle reads it"):
        load_policy(load_zoo())
    with pytest.raises(BundleError, match="is not a folder"):
        load_policy("nowhere")


def load_zoo():
    from policies.zoo.catalog import bundle_folder

    return bundle_folder("zoo:panda-reach")


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


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"low": [0.0]}, "expected 2 bounds"),
        ({"action_dtype": "int64"}, "expected one of float32, float64, got 'int64'"),
        ({"observation_shape": [0]}, "expected 1 to 1,000,000 entries"),
        ({"observation_shape": [10**4, 10**4]}, "expected 1 to 1,000,000 entries"),
    ],
)
def test_specs_that_mean_nothing_are_refused(changed, told):
    with pytest.raises(ConfigError, match=told):
        EnvPolicySpec(**{**SPEC, **changed})
