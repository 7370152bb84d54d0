"""A residual beside robots: its base acts in the robot's env, and is kept by the run."""

import contextlib
import math

import numpy as np
import pytest
import torch

from hardware.learning.hardware_env import Phase
from robot_rl.cli import learn
from robot_rl.cli.components import make_base, make_learner
from robot_rl.cli.learned_reward import episode_augmenter
from robot_rl.cli.learning.actor import Actor
from robot_rl.cli.learning.bundling import write_learned
from robot_rl.cli.learning.environment import (
    BasedRobot,
    check_run,
    learner_spec,
    make_robot_env,
    robot_meaning,
    robot_spec,
)
from robot_rl.cli.learning.lockstep import DirectLink, DirectRecords
from robot_rl.cli.learning.operator import NoConsole
from robot_rl.cli.learning.options import LearnOptions, Person
from robot_rl.cli.learning.parts import make_acting_learner
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.cli.main import main
from robot_rl.core.base_action import BASE_ACTION
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.link.records import Frame
from robot_rl.link.store import ExperienceStore
from robot_rl.training.online import OnlineTrainer
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.bases import ByHand, write_base
from tests.compositions import composed
from tests.equality import tensors
from tests.robot_rl.cli.test_pose_bundle import OverTheHole

SMALL = (
    "learner=residual", "num_envs=1", "device=cpu", "learner.base.replan_interval=2",
    "learner.actor.hidden=[8]", "learner.critic.hidden=[8]", "learner.critic.members=2",
    "learner.batch_size=16", "learner.n_step=1", "training.updates_per_step=1",
    "training.replay_capacity=5000", "online.start_steps=5",
)  # fmt: skip
REACH = ("task=reach", "task.episode_length=0.5", *SMALL)
SIM = LearnOptions(driver="sim", pace=False, person=Person.none)


def based(folder, words, options):
    """A run's config whose base is an ONNX file, and the sizes of its observation and action."""
    bare = robot_spec(composed(words).config, options)
    sizes = math.prod(bare.groups["actor"].shape), bare.action_size
    path = write_base(folder / "given.onnx", *sizes)
    return [*words, f"learner.base.paths=[{path}]"], sizes


class Beside:
    """Actor and learner of a run, with a store between them."""

    def __init__(self, config, folder, store):
        bare = robot_spec(config, SIM)
        spec = learner_spec(config, bare)
        self.link, self.records = DirectLink(), DirectRecords(store)
        self.trainer = OnlineTrainer(
            config.training, config.online, spec=spec, learner=make_learner(config, spec),
            store=store, checkpoints=CheckpointStore(folder / "checkpoints"),
            publish=self.link.publish, record=lambda record: None, interval_seconds=1.0, seed=0,
            augment=episode_augmenter(config, bare),
        )  # fmt: skip
        self.env = make_robot_env(config, SIM, seed=3)
        self.actor = Actor(
            self.env, make_acting_learner(config, self.env.spec, 5), self.records, self.link,
            config=config.online, console=NoConsole(),
        )  # fmt: skip

    def act(self, steps):
        self.trainer.publish()
        self.actor.start()
        before = self.records._stored + self.records.unacknowledged
        while self.records._stored + self.records.unacknowledged < before + steps:
            self.actor.tick()
        self.records.hand_over()
        self.trainer.take()


def test_a_residual_acts_and_learns_on_what_its_base_would_do(tmp_path):
    """It was accepted, and every part failed with `KeyError: 'base_action'`."""
    words, sizes = based(tmp_path, REACH, SIM)
    config = composed(words).config
    check_run(config, SIM)
    with contextlib.closing(ExperienceStore(tmp_path / "log")) as store:
        beside = Beside(config, tmp_path, store)
        beside.actor.evaluate(100)  # without noise an untrained residual does what the base does
        beside.act(35)
        hand, ended = ByHand(*sizes), 0
        frames = [one for _, one in store.read(0) if isinstance(one, Frame)]
        for frame in frames:
            if frame.index == 0:
                hand.start()
            wanted = hand.act(torch.from_numpy(frame.obs["actor"].copy()))
            np.testing.assert_allclose(frame.obs[BASE_ACTION], wanted, atol=1e-5)
            if frame.action is None:
                ended += 1
            else:
                np.testing.assert_allclose(frame.action, wanted, atol=1e-5)
        assert ended >= 2
        while beside.trainer.learn():
            pass
        assert beside.trainer.updates > 10
        beside.env.close()


def test_a_resumed_residual_has_the_base_of_its_run(tmp_path, monkeypatch):
    words, _ = based(tmp_path, REACH, SIM)
    monkeypatch.setattr("robot_rl.cli.learning.supervisor.supervise", lambda one: 0)
    main(["learn", *words, "driver=sim", "role=robot", f"runs={tmp_path / 'runs'}"])
    (run,) = (tmp_path / "runs").iterdir()
    (tmp_path / "given.onnx").unlink()
    folder, config = learn._folder(LearnOptions(run=str(run)), [], writes=False)
    assert config.learner.base.paths == [str(run / "base" / "0.onnx")]
    assert "base" in robot_meaning(config, SIM), "both sides tell which base they have"
    with contextlib.closing(ExperienceStore(tmp_path / "log")) as store:
        first = Beside(config, folder.path, store)
        first.act(30)
        for _ in range(5):
            assert first.trainer.learn()
        first.trainer.save()
        again = Beside(config, folder.path, store)
        again.trainer.load_state_dict(CheckpointStore(folder.path / "checkpoints").load().state)
        for one in (first, again):
            assert one.trainer.learn()
            one.env.close()
        left, right = (tensors(one.trainer.state_dict()["learner"]) for one in (first, again))
        assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_residual_without_a_base_is_refused_before_anything_is_written():
    with pytest.raises(ConfigError, match=r"none was named; expected learner\.base\.paths"):
        check_run(composed(REACH).config, SIM)


PEG = ("task=peg", "task.kind=sparse", "task.episode_length=1", *SMALL)


@pytest.mark.slow
def test_on_a_robot_in_its_loop_a_plan_begins_with_the_episode(tmp_path):
    options = LearnOptions(person=Person.none)
    words, sizes = based(tmp_path, PEG, options)
    config = composed(words).config
    robot = TwinRobot(config, TwinRobotConfig()).lockstep_env()
    with contextlib.closing(BasedRobot(robot, make_base(config, robot.spec, 1))) as env:
        hand, begun, acted = ByHand(*sizes), 0, 0
        env.start_reset()
        while begun < 3:
            if (acted, begun) == (5, 1) and env.phase is Phase.running:  # within a plan
                env.start_reset()
            acts = env.phase is Phase.running
            step = env.step(torch.zeros(1, 6))
            acted += acts
            if acts:
                wanted = hand.act(step.next_obs["actor"][0])
                np.testing.assert_allclose(step.next_obs[BASE_ACTION][0], wanted, atol=1e-5)
            else:
                assert not step.next_obs[BASE_ACTION].any()
            if not acts and env.phase is Phase.running:
                begun += 1
                hand.start()
                wanted = hand.act(step.obs["actor"][0])
                np.testing.assert_allclose(step.obs[BASE_ACTION][0], wanted, atol=1e-5)
        assert acted == 5 + round(1.0 / env.spec.control_dt)  # the first was left, the second ended


@pytest.mark.slow
def test_a_base_whose_actions_mean_something_else_is_refused(tmp_path):
    plain = composed(("task=peg", "robot=panda", "task.kind=sparse")).config
    robot = TwinRobot(plain, TwinRobotConfig())
    bundle = write_learned(tmp_path / "bundle", OverTheHole().eval(), plain, robot, {})
    config = composed([*PEG, f"learner.base.paths=[{bundle}]"]).config
    check_run(config, LearnOptions(person=Person.none))
    other = LearnOptions(person=Person.none, twin=TwinRobotConfig(translation=0.02))
    with pytest.raises(SpecMismatchError, match="mean something else than those of this robot"):
        check_run(config, other)
