"""A classifier as the rule of a robot's episodes: success ends them, doubt asks a person."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch

from hardware.learning.rewards import RewardInputs
from policies.networks.images import ImageConfig, ImageEncoderKind
from robot_rl.cli.learned_reward import LearnedRule
from robot_rl.cli.learning.ros_robot import RosRobot, RosRobotConfig
from robot_rl.cli.learning.twin_robot import Judge, TwinRobot, TwinRobotConfig
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.rewards.artefact import LearnedReward, save_reward
from robot_rl.rewards.classifier import ClassifierConfig, SuccessClassifier
from tests.compositions import composed
from tests.constant_reward import reward_of

pytestmark = pytest.mark.slow
PEG = ["task=peg", "robot=panda", "task.kind=sparse"]


def twin(*words: str) -> TwinRobot:
    return TwinRobot(composed([*PEG, *words]).config, TwinRobotConfig())


@pytest.fixture(scope="module")
def shape() -> tuple[int, float]:
    """Width of what the robot observes, and its control period [s]."""
    with closing(twin().lockstep_env()) as env:
        return env.spec.groups["actor"].shape[0], env.spec.control_dt


def test_held_success_pays_and_ends_the_episode(tmp_path, shape):
    folder = reward_of(tmp_path / "yes", shape[0], 9.0, 9.0, control_dt=shape[1])
    with closing(twin(f"reward.model={folder}", "reward.weight=5").lockstep_env()) as env:
        env.reset(seed=0)
        assert env.probability is None
        first = env.step(torch.zeros(1, env.spec.action_size))
        assert env.probability is not None
        assert env.probability > 0.99
        second = env.step(torch.zeros(1, env.spec.action_size))
    assert (float(first.reward), float(second.reward)) == (0.0, 5.0), "2 of the last 3 frames"
    assert not bool(first.terminated)
    assert bool(second.terminated)
    assert bool(second.success)
    assert env.reason == "success"
    assert env.probability is None, "of no newest frame while the robot is reset"


def test_members_that_disagree_ask_a_person(tmp_path, shape):
    folder = reward_of(tmp_path / "who", shape[0], 9.0, -9.0, control_dt=shape[1])
    with closing(twin(f"reward.model={folder}").lockstep_env()) as env:
        env.reset(seed=0)
        assert env.doubt == ""
        for _ in range(3):
            step = env.step(torch.zeros(1, env.spec.action_size))
            assert float(step.reward) == 0
        assert "uncertain from step 2 of episode 1 on: label it as a success or a" in env.doubt
        env.reset()
        assert env.doubt == ""


def test_a_reward_of_another_robot_or_period_is_refused(tmp_path, shape):
    narrow = reward_of(tmp_path / "narrow", 3, 9.0, control_dt=shape[1])
    with pytest.raises(SpecMismatchError, match=r"reads 'actor' of shape \(3,\)"):
        twin(f"reward.model={narrow}").lockstep_env()
    slow = reward_of(tmp_path / "slow", shape[0], 9.0, control_dt=1.0)
    with pytest.raises(SpecMismatchError, match="its frames are 1 s apart"):
        twin(f"reward.model={slow}").lockstep_env()


def test_nothing_is_added_to_a_reward_that_a_robot_does_not_tell(tmp_path, shape):
    folder = reward_of(tmp_path / "yes", shape[0], 9.0, control_dt=shape[1])
    with pytest.raises(ConfigError, match=r"reward.mode=add adds to a task's own reward"):
        twin(f"reward.model={folder}", "reward.mode=add").lockstep_env()


def test_it_judges_where_labels_of_a_person_would_have(tmp_path, shape):
    folder = reward_of(tmp_path / "yes", shape[0], 9.0, control_dt=shape[1])
    run = composed([*PEG, f"reward.model={folder}"]).config
    assert not TwinRobot(run, TwinRobotConfig(judge=Judge.person)).person_labels
    assert not RosRobot(run, RosRobotConfig(source="/arm"), helped=False).person_labels


def test_it_judges_by_what_a_camera_sees(tmp_path):
    """Bright pictures are successes; of a stack the newest frame counts."""
    images = ImageConfig(
        encoder=ImageEncoderKind.conv, cameras=["wrist"], channels=[2], strides=[1], features=2
    )
    config = ClassifierConfig(groups=[], images=images, members=2, hidden=[4], hold=1)
    shapes = {"image/wrist": (1, 6, 6, 3)}
    classifier = SuccessClassifier(config, shapes, 1, seed=0)
    frames = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None, None]
    both = classifier.judge({"image/wrist": frames.expand(2, 1, 6, 6, 3)}).probability[:, 0]
    classifier.threshold.fill_(float(both.mean()))
    folder = save_reward(tmp_path / "reward", LearnedReward(
        classifier=classifier, labels={"labels": ["end"]}, shapes=shapes, control_dt=0.1,
        robot=None, data={}, quality={},
    ))  # fmt: skip
    assert folder
    rule = LearnedRule(composed([*PEG, f"reward.model={tmp_path / 'reward'}"]).config)
    good = int(both.argmax())
    found = []
    for newest in (good, 1 - good):
        stack = np.full((1, 3, 6, 6, 3), 255 * (1 - newest), np.uint8)
        stack[:, -1] = 255 * newest
        given: Any = {"inputs": None, "outcome": None, "step": 1, "stamp": 0.1}
        rule.begin(RewardInputs(obs={"image/wrist": stack}, **given))
        found.append(rule.judge(RewardInputs(obs={"image/wrist": stack}, **given)).success)
    assert found == [True, False]
