"""A twin that is led and learned on by what its wrist camera sees: nothing is lost on the way."""

import contextlib
import itertools

import numpy as np
import pytest
import torch

from configs.compose import compose
from hardware.control.ipc import ArrayPublisher
from hardware.control.process import RobotChannels
from hardware.learning.hardware_env import Phase
from hardware.teleop.simulated_person import PersonConfig
from robot_rl.cli.learning.lockstep import LockstepLearning, try_policy
from robot_rl.cli.learning.twin_cameras import DrawnPictures, ReceivedPictures, draw_pictures
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.cli.teleop import run as teleop
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.link.records import Frame
from robot_rl.training.storage.checkpoint import CheckpointStore
from sim.cameras.config import ImageRenderer
from sim.twin_cameras import scene_fields, scene_widths

WRIST = "image/wrist"
SMALL = (
    "experiment=peg_pixels_with_person", "device=cpu", "seed=3", "task.episode_length=1.5",
    "robot.cameras.wrist.width=24", "robot.cameras.wrist.height=24",
    "robot.cameras.wrist.crop=[]", "robot.cameras.wrist.stack=2",
)  # fmt: skip
"""Pictures of 24 pixels, so that little is computed."""
LEARNER = (
    "learner.batch_size=16", "learner.actor.hidden=[16]", "learner.critic.hidden=[16]",
    "learner.images.channels=[4,4]", "learner.images.strides=[2,2]", "learner.images.features=8",
    "training.total_steps=45", "training.updates_per_step=1", "online.start_steps=20",
)  # fmt: skip
ROBOT = TwinRobotConfig(success_reward=1.0)


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teleop") / "peg"
    teleop([*SMALL, f"out={folder}", "episodes=2", "seconds=1.5", "twin.success_reward=1"])
    return folder


@pytest.mark.slow
def test_demonstrations_have_the_pictures_and_a_run_learns_from_both(demonstrations, tmp_path):
    stored = EpisodeDataset(demonstrations)
    assert stored.spec.images == {"wrist": (24, 24, 3)}
    assert all(len(np.unique(one.images["wrist"])) > 10 for one in stored)
    config = compose([*SMALL, *LEARNER, f"training.prior.run={demonstrations}"]).config
    learning = LockstepLearning(
        config, ROBOT, tmp_path, experience=tmp_path / "experience", record=lambda values: None,
        person=PersonConfig(response=0.08, stall_time=0.5), record_steps=50,
    )  # fmt: skip
    with contextlib.closing(learning):
        env, trainer = learning._actor._env, learning.trainer
        assert trainer.replay.demonstrations is not None
        prior, count = trainer.replay.prior, len(trainer.replay.demonstrations.replay)
        check_demonstrations(prior, stored)
        acted = acted_on(learning._actor)
        learning.run()
        assert trainer.steps >= 45
        assert trainer.updates == trainer.steps - 20
        check_steps(trainer.replay.steps, acted)
        assert trainer.replay.interventions > 0
        assert prior.total_steps == count + trainer.replay.interventions
        check_log(trainer.store, acted)
        check_resumed(config, tmp_path, trainer)
        assert env.spec.groups[WRIST].shape == (2, 24, 24, 3)
    with contextlib.closing(TwinRobot(config, ROBOT).lockstep_env(1)) as env:
        assert len(try_policy(env, learning.learner, 1, 7)) == 1


def acted_on(actor):
    """Stacks that the actor's policy decides on and that its episodes end with, in order."""
    episodes, env = [], actor._env
    step = env.step

    def look(action):
        runs = env.phase is Phase.running
        if runs:
            if not actor._index:
                episodes.append([])
            episodes[-1].append(actor._obs[WRIST][0].clone())
        made = step(action)
        if runs and bool(made.ended):
            episodes[-1].append(made.next_obs[WRIST][0].clone())
        return made

    env.step = look
    return episodes


def pairs(episodes):
    """Observation and successor of every step that has both."""
    return [pair for one in episodes for pair in itertools.pairwise(one)]


def check_steps(ring, acted):
    expected = pairs(acted)[: ring.total_steps]
    rows = torch.arange(ring.total_steps)
    stacks = [ring._frames[WRIST].stacks(rows, successor=later) for later in (False, True)]
    assert len(expected) == ring.total_steps
    for row, (before, after) in enumerate(expected):
        assert torch.equal(stacks[0][row], before)
        assert torch.equal(stacks[1][row], after)


def check_log(store, acted):
    frames = [entry for _, entry in store.read(0) if isinstance(entry, Frame)]
    seen = [stack[-1] for one in acted for stack in one]
    assert len(seen) - len(frames) in (0, 1)  # the newest one is under way
    for frame, picture in zip(frames, seen, strict=False):
        assert np.array_equal(frame.obs[WRIST], picture)
    assert all(abs(frame.picture_stamps[WRIST] - frame.stamp) < 0.11 for frame in frames)


def check_demonstrations(ring, stored):
    row = 0
    for one in stored:
        frames = torch.from_numpy(one.images["wrist"])
        for k in range(one.num_steps):
            for later in (False, True):
                stack = ring._frames[WRIST].stacks(torch.tensor([row]), successor=later)[0]
                at = k + later
                assert torch.equal(stack, frames[[max(0, at - 1), at]])
            row += 1


def check_resumed(config, folder, trainer):
    """A learner that begins with the checkpoint and the log has the same rings and networks."""
    again = LockstepLearning(
        config, ROBOT, folder / "again", experience=folder / "other",
        record=lambda values: None, person=None, record_steps=50,
    )  # fmt: skip
    with contextlib.closing(again):
        again.trainer.store = trainer.store
        again.trainer.load_state_dict(CheckpointStore(folder / "checkpoints").load().state)
        for one, two in ((again.trainer.replay.steps, trainer.replay.steps),
                         (again.trainer.replay.prior, trainer.replay.prior)):  # fmt: skip
            assert torch.equal(one.ordered_rows(), two.ordered_rows())
            rows = torch.arange(one.total_steps)
            for later in (False, True):
                stacks = [r._frames[WRIST].stacks(rows, successor=later) for r in (one, two)]
                assert torch.equal(*stacks)
        batches = [t.replay.prior.sample(8) for t in (again.trainer, trainer)]
        for name in batches[0].obs:
            assert torch.equal(batches[0].obs[name], batches[1].obs[name])


@pytest.mark.slow
def test_pictures_of_the_drawing_process_are_those_of_the_robots_own():
    robot = TwinRobot(compose([*SMALL]).config, ROBOT)
    twin, name = robot.make_twin(1), "test.pictures"
    twin.connect()
    scene = ArrayPublisher(RobotChannels(name).scene, scene_widths(twin.simulation))
    received, renderer = ReceivedPictures(name, robot.cameras), ImageRenderer.warp
    assert received.newest() == {}
    (shown,) = robot.shown_cameras(name)
    assert shown.newest() is None
    scene.send(scene_fields(twin.simulation), 5.25)
    with contextlib.closing(scene), contextlib.closing(received), contextlib.closing(shown):

        def has_come():
            return "wrist" in received.newest() and shown.newest() is not None

        draw_pictures(robot.make_twin(0), robot.cameras, renderer, name, has_come)
        got, newest = received.newest()["wrist"], shown.newest()
    assert newest is not None
    picture, taken_at = newest
    drawn = DrawnPictures(twin, robot.cameras, renderer)
    own = drawn.newest()["wrist"]
    drawn.close()
    assert got.stamp == 5.25
    assert got.pixels.dtype == np.uint8
    assert np.array_equal(got.pixels, own.pixels)
    assert (shown.name, taken_at) == ("wrist", 5.25)
    assert np.array_equal(picture, own.pixels)
    assert len(np.unique(own.pixels)) > 10
