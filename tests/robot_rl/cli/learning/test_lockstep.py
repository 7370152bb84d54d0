"""Learner, actor, robot and person in one process: the same numbers in every call."""

import contextlib

import pytest
import torch

from configs.compose import compose
from hardware.teleop.simulated_person import PersonConfig
from robot_rl.cli.learning.lockstep import LockstepLearning, try_policy
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig

ROBOT = TwinRobotConfig(success_reward=1.0)


def learned(folder, config):
    """Weights and records of a short run with a person."""
    records = []
    learning = LockstepLearning(
        config, ROBOT, folder, experience=folder / "experience", record=records.append,
        person=PersonConfig(response=0.08, stall_time=0.5), record_steps=50,
    )  # fmt: skip
    with contextlib.closing(learning):
        learning.run()
        policy = learning.learner.policy().state_dict()
        assert learning.trainer.updates == config.training.total_steps - 50 < learning.trainer.steps
    return learning.learner, {name: one.clone() for name, one in policy.items()}, records


@pytest.mark.slow
def test_a_run_repeats_bit_for_bit_and_its_policy_is_tried_alone(tmp_path):
    config = compose([
        "task=peg", "task.kind=sparse", "task.episode_length=2", "learner=hil_serl",
        "learner.gripper.commands=[]", "learner.batch_size=16", "learner.actor.hidden=[16]",
        "learner.critic.hidden=[16]", "training.prior.share=0.0", "training.total_steps=150",
        "training.updates_per_step=1", "online.start_steps=50", "online.publish_seconds=1",
        "device=cpu", "seed=3",
    ]).config  # fmt: skip
    runs = [learned(tmp_path / name, config) for name in ("one", "other")]
    assert all(torch.equal(value, runs[1][1][name]) for name, value in runs[0][1].items())
    assert runs[0][2][-1]["rollout/intervention_rate"] > 0
    assert runs[0][2][-1]["step"] >= 150
    with contextlib.closing(TwinRobot(config, ROBOT).lockstep_env(1)) as env:
        first, again = (try_policy(env, runs[0][0], 2, 7) for _ in range(2))
    assert [one.seconds for one in first] == [2.0, 2.0]
    assert [one.success for one in first] == [one.success for one in again] == [False, False]
