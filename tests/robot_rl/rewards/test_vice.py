"""A classifier that learns on: what fools it stops to pay, and it goes on bit for bit."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from policies.networks.images import ImageConfig, ImageEncoderKind
from robot_rl.core.errors import ConfigError, RewardError
from robot_rl.rewards.artefact import LearnedReward, load_reward, save_reward
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier
from robot_rl.rewards.env import LearnedRewardEnv, RewardConfig, RewardMode, ViceConfig
from robot_rl.rewards.vice import ViceJudge
from tests.equality import assert_same
from tests.fakes import PointMass, ToyEnv, copied, random_batch

CPU = torch.device("cpu")
GENERATOR = torch.Generator()
FAST = ViceConfig(interval=40, updates=5, batch_size=64, lr=3e-3, keep=4000)


def places(around: tuple[float, float], count: int = 200) -> torch.Tensor:
    return torch.tensor(around) + 0.05 * torch.randn(count, 2, generator=GENERATOR)


def reward(**changes: Any) -> LearnedReward:
    """Success lies at (1, 1); the classifier knows nothing yet."""
    classifier = SuccessClassifier(ClassifierConfig(hidden=[32]), {"actor": (2,)}, 1, seed=0)
    return LearnedReward(**{
        "classifier": classifier, "labels": {"labels": ["end"]}, "shapes": {"actor": (2,)},
        "control_dt": 0.1, "robot": None, "data": {}, "quality": {},
        "examples": {"actor": places((1.0, 1.0))}, **changes,
    })  # fmt: skip


@pytest.fixture(autouse=True)
def _seed():
    GENERATOR.manual_seed(0)


def judge_of(given: LearnedReward | None = None, config: ViceConfig = FAST) -> ViceJudge:
    return ViceJudge(given or reward(), config, 10, CPU, seed=0)


def answer(judge: ViceJudge, around: tuple[float, float]) -> float:
    batch = random_batch(ToyEnv(PointMass(), 1).spec, 50)
    batch = replace(batch, next_obs={"actor": places(around, 50)})
    return float(judge.paid(batch, 1.0).reward.mean())


def test_what_the_policy_visits_pays_less_and_less_and_successes_go_on_paying():
    judge = judge_of()
    for _ in range(200):
        judge.judge({"actor": places((-1.0, 0.0), 10)})
    assert answer(judge, (-1.0, 0.0)) < 0.1
    assert answer(judge, (1.0, 1.0)) > 0.8
    for _ in range(400):  # the policy finds something else that pays: in between
        judge.judge({"actor": places((0.7, 0.2), 10)})
    assert answer(judge, (0.7, 0.2)) < 0.2
    for _ in range(600):  # it succeeds: the same frames are examples of both
        judge.judge({"actor": places((1.0, 1.0), 10)})
    assert answer(judge, (1.0, 1.0)) == pytest.approx(0.5, abs=0.15)


def test_nothing_is_learned_between_the_lessons_and_old_frames_are_forgotten():
    judge = judge_of(config=replace(FAST, keep=25))
    before = judge.judge({"actor": torch.ones(10, 2)}).reward.clone()
    for _ in range(2):
        assert torch.equal(judge.judge({"actor": torch.ones(10, 2)}).reward, before)
    assert not torch.equal(judge.judge({"actor": torch.ones(10, 2)}).reward, before)
    judge.judge({"actor": torch.full((10, 2), torch.nan)})
    kept = judge.state_dict()
    assert kept["visited"]["actor"].shape == (20, 2), "whole steps of all envs"
    assert sorted(kept["whole"].tolist()) == [False] * 10 + [True] * 10
    for _ in range(5):  # nothing but rows of faulted envs: no lesson
        judge.judge({"actor": torch.full((10, 2), torch.nan)})
    assert all(one.isfinite().all() for one in judge.state_dict()["classifier"].values())


def test_state_goes_on_bit_for_bit():
    given = reward()

    def made() -> LearnedRewardEnv:
        env = ToyEnv(PointMass(), 10)
        return LearnedRewardEnv(env, judge_of(given), mode=RewardMode.replace, weight=2.0)

    env, action = made(), torch.zeros(10, 1)
    env.reset(seed=0)
    for _ in range(7):
        env.step(action)
    state = copied(env.state_dict())
    rewards = [env.step(action).reward.clone() for _ in range(20)]
    other = made()
    other.reset(state=state)
    for expected in rewards:
        assert torch.equal(other.step(action).reward, expected)
    assert_same(other.state_dict(), env.state_dict())
    assert len({float(one[0]) for one in rewards}) > 4, "it learned on"


def test_images_are_learned_from_too_by_their_newest_frame():
    config = ImageConfig(
        encoder=ImageEncoderKind.conv, cameras=["front"], channels=[4], strides=[2], features=4,
        shift=1,
    )  # fmt: skip
    shapes = {"image/front": (1, 12, 12, 1)}
    classifier = SuccessClassifier(ClassifierConfig(groups=[], images=config), shapes, 1, seed=0)
    bright = torch.full((20, 1, 12, 12, 1), 200, dtype=torch.uint8)
    judge = judge_of(reward(classifier=classifier, examples={"image/front": bright}))
    dark = torch.zeros(10, 3, 12, 12, 1, dtype=torch.uint8)
    for _ in range(60):
        judge.judge({"image/front": dark})
    assert float(judge.judge({"image/front": dark}).reward.mean()) < 0.2
    dark[:, -1] = 200  # the newest frame counts
    assert float(judge._probability(judge._newest({"image/front": dark})).mean()) > 0.6


def test_successes_are_kept_with_the_reward_and_guarded(tmp_path):
    save_reward(tmp_path / "one", reward())
    kept = load_reward(tmp_path / "one").examples["actor"]
    assert kept.shape == (200, 2)
    path = tmp_path / "one" / "examples.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(RewardError, match=r"is damaged: examples.safetensors has"):
        load_reward(tmp_path / "one")


def test_what_cannot_learn_on_is_refused():
    with pytest.raises(ConfigError, match="did not keep: train it again"):
        judge_of(reward(examples={}))
    with pytest.raises(ConfigError, match="the reward has 2 stages"):
        judge_of(reward(labels={"labels": ["half", "end"]}))
    for settings in ({}, {"model": "a", "mode": RewardMode.add}):
        with pytest.raises(ConfigError, match=r"goes on from reward\.model"):
            RewardConfig(vice=ViceConfig(interval=1), **settings)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"interval": -1}, "at least 0"), ({"batch_size": 3}, "must be even"),
        ({"lr": 0.0}, r"\(0, 1\)"),
    ]  # fmt: skip
    for settings, told in wrong:
        with pytest.raises(ConfigError, match=told):
            ViceConfig(**settings)
