"""A run of `robot-rl learn` as a data set: whole episodes, labels as they stand, nothing else."""

import contextlib
import dataclasses
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.compose import compose, to_plain
from hardware.teleop.simulated_person import PersonConfig
from robot_rl.cli.components import run_name
from robot_rl.cli.learning.environment import robot_spec
from robot_rl.cli.learning.lockstep import LockstepLearning
from robot_rl.cli.learning.options import SAVED, LearnOptions, experience_folder
from robot_rl.cli.learning.twin_robot import TwinRobot, TwinRobotConfig
from robot_rl.cli.teleoperation.demonstrations import episode_spec
from robot_rl.core.errors import ConfigError
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame, encode
from robot_rl.link.store import ExperienceStore
from robot_rl.training.prior import read_saved
from robot_rl.training.runs.provenance import collect_provenance
from robot_rl.training.runs.run_folder import RunFolder, RunState
from tests.robot_rl.cli.tiny_run import only_run

pytestmark = pytest.mark.slow

REACH = (
    "task=reach",
    "learner=rlpd",
    "num_envs=1",
    "device=cpu",
    "task.episode_length=0.4",
    "task.success_window=0.1",
)
SMALL = (
    "task=reach", "video=false", "logging.tensorboard=false", "logging.interval_seconds=1000",
    "task.episode_length=0.4", "task.success_window=0.1", "learner.batch_size=8",
    "learner.actor.hidden=[8]", "training.evaluation_episodes=2", "training.evaluation_interval=40",
)  # fmt: skip


def begun(folder: Path, words: tuple[str, ...], *options: str) -> Path:
    """A run of `robot-rl learn` without a step."""
    composition = compose([*words])
    plain = to_plain(composition.config)
    name = run_name(composition.config, composition.chosen)
    run = RunFolder.create(folder, name, plain, collect_provenance(plain, seed=0, device="cpu"))
    (run.path / SAVED).write_text(json.dumps(options))
    run.mark(RunState.INTERRUPTED)
    run.close()
    return run.path


class Robot:
    """Steps of a robot, as its learner stores them; all numbers are different."""

    def __init__(self, run: Path, widths: dict[str, int]) -> None:
        self.store = ExperienceStore(experience_folder(run))
        self.rng, self._widths = np.random.default_rng(4), widths
        self.session, self.frames, self._seq = "", dict[tuple[str, int, int], Frame](), 0

    def begin(self) -> str:
        """A new start of the actor."""
        self.session, self._seq = uuid.uuid4().hex, 0
        self.store.begin(self.session, "arm")
        return self.session

    def put(self, record: Frame | Correction) -> None:
        if isinstance(record, Frame):
            record = dataclasses.replace(record, session=self.session, seq=self._seq)
            self.frames[self.session, record.episode, record.index] = record
        self.store.append(self.session, self._seq, [encode(record)])
        self._seq += 1

    def play(self, episode: int, steps: int, *, first: int = 0, ends: bool = True, **flags: Any):
        """An episode; `ends` says whether it has its last frame."""
        for index in range(first, steps + ends):
            obs = {k: self.rng.normal(size=n).astype(np.float32) for k, n in self._widths.items()}
            about: dict[str, Any] = {}
            if index < steps:
                about = {
                    "action": self.rng.uniform(-1, 1, 7).astype(np.float32),
                    "reward": float(self.rng.normal()), "policy_version": 3,
                    "truncated": ends and index == steps - 1, **flags,
                }  # fmt: skip
            stamp = 1e9 + 100 * episode + 0.1 * index
            self.put(Frame(episode=episode, index=index, obs=obs, stamp=stamp, **about))

    def say(self, kind: str, episode: int, time: float, **values: Any) -> str:
        """A label; returns its id."""
        one = Correction(
            id=uuid.uuid4().hex, session=values.pop("session", self.session), episode=episode,
            kind=kind, time=time, **values,
        )  # fmt: skip
        self.put(one)
        return one.id


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return begun(tmp_path / "runs", REACH, "driver=sim")


@pytest.fixture
def robot(run: Path) -> Iterator[Robot]:
    spec = robot_spec(compose([*REACH]).config, LearnOptions(driver="sim"))
    made = Robot(run, {name: group.shape[0] for name, group in spec.groups.items()})
    made.begin()
    with contextlib.closing(made.store):
        yield made


def test_episodes_are_whole_and_judged_as_all_labels_say(run, robot, command, tmp_path):
    first = robot.session
    robot.play(0, 5)
    robot.play(1, 6, intervened=True)
    robot.say("success", 1, 11.0, index=3, value=1.0)
    robot.play(2, 4)
    robot.say("discard", 2, 12.0)
    robot.play(3, 4)
    undone = robot.say("fail", 3, 13.0, index=1)
    robot.play(4, 3, ends=False)  # killed: the third step has no successor
    robot.begin()
    robot.say("undo", 3, 14.0, text=undone, session=first)  # labels come late
    robot.say("discard", 0, 15.0, session=first, index=1, until=3)
    robot.play(0, 2)
    robot.play(0, 7, first=4)  # two frames are lost
    robot.store.close()
    out = tmp_path / "set"
    answer = command("data", "convert", str(run), str(out))
    assert f"wrote 6 episodes to {out}" in answer.out
    assert "note: 1 of 7 episodes are left out, as asked for or discarded" in answer.out

    dataset = EpisodeDataset(out)
    assert dataset.spec.judges_success
    assert (dataset.spec.robot or {})["name"] == "panda"
    assert dataset.tasks == ["reach"] * 6
    found = list(dataset)
    assert [one.num_steps for one in found] == [5, 4, 4, 2, 2, 3]
    second = robot.session
    places = [(first, 0, 0), (first, 1, 0), (first, 3, 0), (first, 4, 0), (second, 0, 0)]
    for one, (session, episode, start) in zip(found, [*places, (second, 0, 4)], strict=True):
        assert one.source == f"{run.name} arm {session[:8]}/{episode}"
        frames = [robot.frames[session, episode, start + k] for k in range(one.num_steps + 1)]
        for name, group in one.obs.items():
            assert np.array_equal(group, [frame.obs[name] for frame in frames])
        assert np.array_equal(one.action, [frame.action for frame in frames[:-1]])
        stamps = [round(1e9 * frame.stamp) for frame in frames]
        assert one.stamp_ns.tolist() == stamps
        assert one.policy_version.tolist() == [3] * one.num_steps
        assert bool(one.terminated[-1]) == (one is found[1])
        assert one.intervened.all() == (one is found[1])
        paid = [frame.reward for frame in frames[:-1]]
        paid[-1] = 1.0 if one is found[1] else paid[-1]
        assert one.reward == pytest.approx(paid)
    assert found[0].valid.tolist() == [True, False, False, True, True]
    assert [bool(one.success[-1]) for one in found] == [False, True, False, False, False, False]


def test_successes_and_what_people_led_are_chosen(run, robot, command, tmp_path):
    robot.play(0, 3, intervened=True)
    robot.say("success", 0, 11.0, index=2, value=1.0)
    robot.play(1, 3)
    robot.say("success", 1, 12.0, index=2, value=1.0)
    robot.play(2, 2, ends=False)
    robot.play(2, 4, first=2, intervened=True)  # the person took over
    robot.store.close()
    places = [tmp_path / name for name in ("good", "led", "both", "none")]
    command("data", "convert", str(run), str(places[0]), "only_successes=true")
    assert [one.success[-1] for one in EpisodeDataset(places[0])] == [True, True]
    command("data", "convert", str(run), str(places[1]), "only_led=true")
    led = [one.valid.tolist() for one in EpisodeDataset(places[1])]
    assert led == [[True] * 3, [False, False, True, True]]
    words = ["only_led=true", "only_successes=true"]
    command("data", "convert", str(places[1]), str(places[2]), *words)  # of any data set
    assert EpisodeDataset(places[2]).lengths == [3]
    robot.store = ExperienceStore(experience_folder(run))
    robot.say("discard", 0, 20.0)
    robot.store.close()
    answer = command("data", "convert", str(run), str(places[3]), *words, exits=2)
    assert f"none of the 3 episodes of {run} is one that is wanted" in answer.err
    assert not places[3].exists()


def test_a_clock_that_was_set_back_and_numbers_that_are_none_lose_no_episode(
    run, robot, command, tmp_path, caplog
):
    robot.play(0, 4)
    robot.play(1, 1, ends=False)
    broken = {name: np.full_like(one, np.nan) for name, one in _newest(robot).obs.items()}
    robot.put(dataclasses.replace(_newest(robot), index=1, obs=broken, stamp=1.0))
    robot.play(1, 5, first=2)
    robot.store.close()
    (log,) = experience_folder(run).glob("*.log")
    with log.open("ab") as file:
        file.write(b"torn")  # of a learner that was killed as it wrote
    command("data", "convert", str(run), str(tmp_path / "set"))
    assert f"its 4 bytes are kept in {log.name}.cut" in caplog.text
    one = list(EpisodeDataset(tmp_path / "set"))[1]
    assert one.valid.tolist() == [False, False, True, True, True]
    assert (np.diff(one.stamp_ns) >= 0).all()


def _newest(robot: Robot) -> Frame:
    return list(robot.frames.values())[-1]


def test_what_cannot_be_converted_is_one_sentence(run, robot, command, tmp_path):
    def refused(*words: str) -> str:
        return command("data", "convert", str(run), str(tmp_path / "set"), *words, exits=2).err

    assert f"{run} holds no step yet" in refused()
    robot.play(0, 3)
    with RunFolder.open(run).used():
        assert f"{run} goes on, and its steps are still being written" in refused()
    with RunFolder.open(run, write=True):
        (run / "status.json").unlink()
        assert "is being written by process" in refused()
    robot.store.close()
    assert f"{run} is ours, which says everything" in refused("task=reach")
    (log,) = experience_folder(run).glob("*.log")
    kept = log.read_bytes()
    log.write_bytes(b"RRLLOG9\n" + kept[8:])
    assert f"{log} does not begin as a log does" in refused()
    log.write_bytes(kept)
    (run / SAVED).rename(run / "away")
    assert f"{SAVED} is missing" in refused()
    log.unlink()
    assert f"{run} has no steps of a robot" in refused()
    assert not (tmp_path / "set").exists()
    assert sorted(one.name for one in experience_folder(run).iterdir()) == ["name"]


def test_clones_and_rlpd_learn_from_it(here, run, robot, command, train_only):
    for episode in range(6):
        robot.play(episode, 12, intervened=True)
        robot.say("success", episode, 11.0 + episode, index=9, value=1.0)
    robot.store.close()
    command("data", "convert", str(run), "set", "only_led=true")
    train_only(*SMALL, "learner=bc", "training.demonstrations.data=set", "training.total_steps=40")
    train_only(
        *SMALL, "learner=rlpd", "training.prior.run=set", "training.total_steps=60", "runs=rlpd",
        "num_envs=2", "learner.critic.hidden=[8]", "training.random_steps=20",
        "training.updates_per_step=1",
    )  # fmt: skip
    assert RunFolder.open(only_run("rlpd")).status().state is RunState.FINISHED


def test_the_pictures_of_a_twin_come_along(command, tmp_path):
    words = (
        "experiment=peg_pixels_with_person", "device=cpu", "seed=3", "task.episode_length=1.5",
        "robot.cameras.wrist.width=24", "robot.cameras.wrist.height=24",
        "robot.cameras.wrist.crop=[]", "robot.cameras.wrist.stack=2", "learner.batch_size=16",
        "learner.actor.hidden=[16]", "learner.critic.hidden=[16]", "learner.images.channels=[4,4]",
        "learner.images.strides=[2,2]", "learner.images.features=8", "training.total_steps=45",
        "training.updates_per_step=1", "online.start_steps=20",
    )  # fmt: skip
    run = begun(tmp_path / "runs", words, "driver=twin", "twin.success_reward=1")
    config, led = compose([*words]).config, TwinRobotConfig(success_reward=1.0)
    learning = LockstepLearning(
        config, led, run,
        experience=experience_folder(run), record=lambda values: None,
        person=PersonConfig(response=0.08, stall_time=0.5), record_steps=50,
    )  # fmt: skip
    with contextlib.closing(learning):
        learning.run()
    with contextlib.closing(ExperienceStore(experience_folder(run))) as store:
        frames = [one for _, one in store.read(0) if isinstance(one, Frame)]
    with pytest.raises(ConfigError, match=f"robot-rl data convert {run} datasets/<name>"):
        read_saved(run)
    command("data", "convert", str(run), str(tmp_path / "set"))
    dataset = EpisodeDataset(tmp_path / "set")
    assert dataset.spec.images == {"wrist": (24, 24, 3)}
    robot = TwinRobot(config, led)
    with contextlib.closing(robot.lockstep_env()) as env:  # as robot-rl teleop writes it
        dataset.spec.check_same(episode_spec(robot, env.spec), "one", "other")
    for number, one in enumerate(dataset):
        seen = [f.obs["image/wrist"] for f in frames if f.episode == number]
        assert np.array_equal(one.images["wrist"], seen[: one.num_steps + 1])
    assert sum(dataset.lengths) >= 45
