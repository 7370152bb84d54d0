"""A reward on disk: equal after a round trip, refused in a sentence where something is wrong."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from robot_rl.core.env import EnvSpec, GroupSpec
from robot_rl.core.errors import RewardError, SpecMismatchError
from robot_rl.rewards.artefact import LearnedReward, load_reward, save_reward
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier

SPEC = EnvSpec(
    num_envs=1, device=torch.device("cpu"), action_size=1, control_dt=0.1,
    groups={"actor": GroupSpec(shape=(2,))},
)  # fmt: skip


def made(**changes) -> LearnedReward:
    classifier = SuccessClassifier(ClassifierConfig(hidden=[4]), {"actor": (2,)}, 1, seed=3)
    classifier.threshold.fill_(0.7)
    values = {
        "classifier": classifier, "labels": {"labels": ["end"]}, "shapes": {"actor": (2,)},
        "control_dt": 0.1, "robot": None, "data": {"digests": {}}, "quality": {},
    }  # fmt: skip
    return LearnedReward(**{**values, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_reward(tmp_path / "reward", made())
    return tmp_path / "reward"


def test_round_trip_judges_alike(folder):
    obs = {"actor": torch.randn(50, 2)}
    before, after = made().classifier.judge(obs), load_reward(folder).classifier.judge(obs)
    assert torch.equal(before.probability, after.probability)
    assert torch.equal(before.reached, after.reached)


def test_folder_holds_json_and_safetensors_alone(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["reward.json", "weights.safetensors"]
    manifest = json.loads((folder / "reward.json").read_text())
    assert {"quality", "data", "packages", "control_dt", "shapes"} <= manifest.keys()


def test_nothing_is_overwritten(folder):
    with pytest.raises(RewardError, match="exists already; choose another folder"):
        save_reward(folder, made())


def test_changed_weights_are_refused(folder):
    path = folder / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RewardError, match=r"is damaged: weights.safetensors has"):
        load_reward(folder)


def test_a_changed_threshold_in_the_manifest_is_refused(folder):
    path = folder / "reward.json"
    path.write_text(path.read_text().replace('"hold": 3', '"hold": 1'))
    with pytest.raises(RewardError, match=r"reward.json is not as written"):
        load_reward(folder)


def test_a_newer_format_and_no_reward_at_all_are_said(folder, tmp_path):
    with pytest.raises(RewardError, match=r"there is no reward in .*reward train writes it"):
        load_reward(tmp_path)
    path = folder / "reward.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(RewardError, match="has format 9, this program reads up to 1"):
        load_reward(folder)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (replace(SPEC, groups={"critic": GroupSpec(shape=(2,))}), "it reads 'actor', and the"),
        (replace(SPEC, groups={"actor": GroupSpec(shape=(3,))}), r"of shape \(2,\), which has"),
        (replace(SPEC, control_dt=0.02), "its frames are 0.1 s apart, here 0.02 s"),
    ],
)  # fmt: skip
def test_envs_that_do_not_fit_are_refused(spec, sentence):
    made().check_env(SPEC, "rewards/a")
    with pytest.raises(SpecMismatchError, match=f"rewards/a does not fit.*{sentence}"):
        made().check_env(spec, "rewards/a")
