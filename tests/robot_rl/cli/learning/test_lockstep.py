"""Learner, actor, robot and person in one process: the same numbers in every call."""

import contextlib

import pytest
import torch

from configs.compose import compose
from hardware.teleop.simulated_person import PersonConfig
from robot_rl.cli.learning.lockstep import LockstepLearning, try_policy
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.link.records import Correction, Frame
from robot_rl.link.store import ExperienceStore
from tests.robot_rl.cli.learning.test_learned_reward import reward_of

ROBOT = TwinRobotConfig(success_reward=1.0)


def learned(folder, config, start=50):
    """Weights and records of a short run with a person."""
    records = []
    learning = LockstepLearning(
        config, ROBOT, folder, experience=folder / "experience", record=records.append,
        person=PersonConfig(response=0.08, stall_time=0.5), record_steps=50,
    )  # fmt: skip
    with contextlib.closing(learning):
        learning.run()
        policy = learning.learner.policy().state_dict()
        assert learning.trainer.updates == learning.trainer.steps - start
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


@pytest.mark.slow
def test_the_person_s_keys_correct_a_reward_that_is_fooled(tmp_path):
    words = [
        "task=peg", "task.kind=sparse", "task.episode_length=2", "learner=hil_serl",
        "learner.gripper.commands=[]", "learner.batch_size=16", "learner.actor.hidden=[16]",
        "learner.critic.hidden=[16]", "training.prior.share=0.0", "training.total_steps=40",
        "training.updates_per_step=1", "online.start_steps=20", "online.publish_seconds=1",
        "device=cpu", "seed=3",
    ]  # fmt: skip
    with contextlib.closing(TwinRobot(compose(words).config, ROBOT).lockstep_env()) as env:
        width, dt = env.spec.groups["actor"].shape[0], env.spec.control_dt
    fooled = reward_of(tmp_path / "yes", width, 9.0, 9.0, control_dt=dt)
    learned(tmp_path / "run", compose([*words, f"reward.model={fooled}"]).config, start=20)
    with contextlib.closing(ExperienceStore(tmp_path / "run" / "experience")) as store:
        entries = [entry for _, entry in store.read(0)]
    ends = {one.episode: one.index for one in entries if isinstance(one, Frame) and one.success}
    said = {one.episode: one.index for one in entries if isinstance(one, Correction)}
    assert len(ends) > 10, "every second step ends an episode"
    assert {kind.kind for kind in entries if isinstance(kind, Correction)} == {"fail"}
    told = {episode: step for episode, step in ends.items() if episode in said}
    assert len(told) >= len(ends) - 6, "all but those of the last 0.3 s"
    assert all(said[episode] == step for episode, step in told.items()), "the step that was paid"
