"""`robot-rl collect`: data sets of experts, the same after every kill, and what it refuses."""

import filecmp
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from robot_rl.cli.collection.experts import (
    Casting,
    CollectOptions,
    Expert,
    _check_alike,
    read_shares,
)
from robot_rl.cli.collection.rounds import Disturbance, Rounds
from robot_rl.core.env import EnvSpec, GroupSpec, Obs
from robot_rl.core.errors import SpecMismatchError
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.writer import DatasetWriter
from tests.compositions import composed
from tests.fakes import CPU, ToyEnv
from tests.robot_rl.training.countdown import Countdown
from tests.sim.pixels import pixel_envs

pytestmark = pytest.mark.slow  # a collection takes a second

SHORT = ("task=reach", "task.episode_length=0.4", "task.success_window=0.04", "num_envs=4")
LOOSE = (*SHORT, "task.success_distance=0.15")


def alike(one: Path, two: Path) -> bool:
    """Whether two folders hold the same files, byte by byte."""
    compared = filecmp.dircmp(one, two, ignore=["incoming"])
    names = compared.common_files
    equal = len(filecmp.cmpfiles(one, two, names, shallow=False)[0]) == len(names)
    inside = all(alike(one / name, two / name) for name in compared.common_dirs)
    return equal and inside and not (compared.left_only or compared.right_only)


@pytest.fixture
def killed(command, monkeypatch):
    """Run a command that is stopped when it is about to store for the n-th time."""

    def run(times: int, *arguments: str):
        add, count = DatasetWriter.add, 0

        def failing(writer, *episodes):
            nonlocal count
            count += bool(episodes)
            if count > times:
                raise KeyboardInterrupt
            add(writer, *episodes)

        with monkeypatch.context() as patch:
            patch.setattr(DatasetWriter, "add", failing)
            return command("collect", *arguments, exits=130)

    return run


def test_a_killed_collection_goes_on_to_the_same_files(command, killed, here):
    # Random actions throw the Crazyflie off at different times: worlds end one by one.
    line = ("task=hover", "task.episode_length=1", "task.success_window=0.1", "num_envs=4",
            "expert=scripted:0.25,random:0.75", "episodes=8", "seed=3")  # fmt: skip
    command("collect", *line, "out=whole")
    lengths = EpisodeDataset("whole").lengths
    assert len(lengths) == 8
    assert len(set(lengths)) > 3
    for times in (1, 4):
        answer = killed(times, *line, "out=parts", "append=true")
        assert "continue with: append=true" in answer.out
    kept = len(EpisodeDataset("parts"))
    assert 5 <= kept < 8
    answer = command("collect", *line, "out=parts", "append=true")
    assert f"{kept} episodes of this command are there already" in answer.out
    assert alike(Path("whole"), Path("parts"))
    # Once more: nothing is played, nothing comes twice.
    command("collect", *line, "out=parts", "append=true")
    assert alike(Path("whole"), Path("parts"))
    # Another seed is other episodes.
    command("collect", *line[:-1], "seed=4", "out=parts", "append=true")
    digests = [one.digest() for one in EpisodeDataset("parts")]
    assert len(digests) == len(set(digests)) == 16


def test_more_episodes_go_on_where_fewer_ended(command, here):
    for episodes in (2, 6):
        command("collect", *SHORT, f"episodes={episodes}", "out=grown", "append=true")
    command("collect", *SHORT, "episodes=6", "out=whole")
    grown, whole = ([one.digest() for one in EpisodeDataset(at)] for at in ("grown", "whole"))
    assert sorted(grown) == sorted(whole)
    sources = [one.rpartition("/")[2] for one in EpisodeDataset("grown").sources]
    assert sources == ["0", "1", "2", "3", "4", "5"]


def test_frames_lie_between_a_start_and_its_own_end(command, here):
    command("collect", *SHORT, "episodes=4", "noise=0", "out=set")
    for one in EpisodeDataset("set"):
        assert one.num_steps == 10
        assert one.obs["actor"].shape[0] == 11
        assert one.truncated[-1]
        assert one.valid.all()
        # joint positions (7) come first in the group: no leap into the next episode at the end
        leaps = np.abs(np.diff(one.obs["actor"][:, :7], axis=0)).max(axis=1)
        assert leaps[-1] < 0.1
        np.testing.assert_array_equal(one.obs["actor"][1:, -7:], one.action)  # the last action
        assert one.reward_terms is not None
        assert set(one.obs) == {"actor", "critic"}


def test_an_experiment_brings_its_task_its_robot_and_its_cameras(command, refused, here):
    command("collect", "experiment=reach_pixels", *SHORT[1:], "episodes=4", "out=set")
    told = EpisodeDataset(Path("set")).spec
    assert dict(told.images) == {"front": (48, 48, 3), "side": (48, 48, 3)}
    assert "did you mean 'expert'" in refused("collect", "experts=random", "out=other")


def test_only_successes_leaves_the_others_out(command, refused, here):
    told = command("collect", *LOOSE, "episodes=9", "only_successes=true", "out=good").out
    good = list(EpisodeDataset("good"))
    assert len(good) == 9
    assert all(one.success[-1] for one in good)
    assert "succeeded" in told
    told = refused("collect", *SHORT, "expert=random", "noise=0", "only_successes=true",
                   "task.success_distance=0.0001", "attempts=4", "out=none")  # fmt: skip
    assert "0 of 50 are in none" in told
    assert not Path("none").exists()


def test_of_two_experts_each_plays_its_share_and_is_named(command, here):
    line = (*SHORT, "expert=zero:0.75,random:0.25", "noise=0", "episodes=8", "out=mixed")
    command("collect", *line)
    dataset = EpisodeDataset("mixed")
    who = [one.partition(" ")[0] for one in dataset.sources]
    assert who.count("zero") == 6
    assert who.count("random") == 2
    for name, one in zip(who, dataset, strict=True):
        assert bool((one.action == 0).all()) is (name == "zero")
    told = command("data", "info", "mixed").out
    assert "source         6 x zero" in told
    assert {one.task for one in dataset} == {"reach"}


def test_executed_actions_are_stored_and_noise_ends_when_it_should(command, here):
    line = (*SHORT, "expert=zero", "noise=5", "noise_seconds=0.2", "episodes=4", "out=set")
    command("collect", *line, "words=stand still")
    for one in EpisodeDataset("set"):
        disturbed = np.abs(one.action).max(axis=1) > 0
        assert disturbed.tolist() == 5 * [True] + 5 * [False]
        assert np.abs(one.action).max() == 1.0  # as it was clipped, not as it was asked
        assert one.task == "stand still"


def test_a_trained_policy_plays_in_the_worlds_of_its_run(command, finished_run, here, refused):
    run = str(finished_run)
    step = sorted((finished_run / "checkpoints").glob("step_*"))[0]
    line = ("num_envs=2", "task.episode_length=0.2", "task.success_window=0.1", "episodes=4")
    mixed = f"expert={run}:0.5,{run}/bundle:0.25,{step}:0.25"
    command("collect", mixed, *line, "noise=0", "out=set")
    names = {one.rpartition(" ")[0] for one in EpisodeDataset("set").sources}
    assert f"bundle of {finished_run.name}" in names
    assert f"{finished_run.name} at step {int(step.name.removeprefix('step_'))}" in names
    told = refused("collect", f"expert={run}", "task=reach", "out=other")
    assert "was trained with another robot.spec" in told
    assert not Path("other").exists()


def test_a_policy_whose_actions_would_reach_elsewhere_does_not_play(tmp_path):
    """The reach of an action was not compared."""
    run = composed(["task=velocity"]).config
    _check_alike(run, run, tmp_path)
    for change in ("robot.action_scale=0.1", "robot.action_scales={calf: 0.2}"):
        other = composed(["task=velocity", change]).config
        with pytest.raises(SpecMismatchError, match="moves the robot otherwise"):
            _check_alike(run, other, tmp_path)


def test_training_starts_are_whole_episodes_too(command, here):
    line = ("task=velocity", "expert=zero", "noise=0", "num_envs=3", "task.episode_length=0.4")
    command("collect", *line, "starts=training", "episodes=5", "out=set")
    # Worlds of a training run end their first episodes staggered; these do not.
    assert EpisodeDataset("set").lengths == 5 * [20]  # at 50 Hz


def test_a_foreign_environment_is_played_by_chance(command, refused, here):
    gym = ("env=gymnasium", "env.id=Pendulum-v1", "num_envs=2", "episodes=2")
    command("collect", *gym, "expert=random", "out=set")
    (one, _) = EpisodeDataset("set")
    assert one.task == "Pendulum-v1"
    assert one.num_steps == 200
    assert "envs of our own" in refused("collect", *gym, "out=other")
    told = refused("collect", *gym, "expert=zero", "only_successes=true", "out=other")
    assert "nothing here says what a success is" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["task=peg"], "out is empty"),
        (["task=velocity", "out=set"], "tasks that have one: reach, lift, peg, drawer, hover"),
        (["task=reach", "out=set", "expert=runs"], "is not a run"),
        (["out=set", "expert=scripted,random"], "'scripted' has no share"),
        (["out=set", "expert=scripted:0.5,random:0.4"], "add up to 0.9; expected 1"),
        (["out=set", "expert=zero:0.5,zero:0.5"], "names one twice"),
        (["out=set", "noise=nan"], "noise must be 0 or more, got nan"),
        (["out=set", "training.total_steps=5"], "changes nothing in a collection"),
        (["task=hover", "robot.action=body_rates", "out=set"], "use robot.action=rotors"),
        (["task=hover", "states=true", "out=set"], "expected a robot with joints"),
        (["out=runs/file"], "is not empty; choose a new folder"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(refused, here, arguments, words):
    (here / "runs").mkdir()
    (here / "runs/file").write_text("mine")
    assert words in refused("collect", *arguments)
    assert not Path("set").exists()


def test_a_data_set_is_gone_on_with_only_if_asked_and_only_if_it_fits(command, refused, here):
    command("collect", *SHORT, "episodes=1", "noise=0", "out=set")
    assert "continue it with append=true" in refused("collect", *SHORT, "out=set")
    told = refused("collect", "task=peg", "num_envs=1", "out=set", "append=true")
    assert "do not go together" in told
    told = refused("collect", *SHORT, "robot.action_scale=0.3", "out=set", "append=true")
    assert "have another meaning: action." in told
    shutil.rmtree("set/data")
    assert "is missing" in command("data", "info", "set", exits=1).out


def test_shares_are_met_as_nearly_as_whole_episodes_allow():
    shares = read_shares("a:0.5,b:0.3,c:0.2")
    cast = Casting(shares).of(0, 100)
    for count in range(1, 101):
        for number, one in enumerate(shares):
            assert abs(cast[:count].count(number) - one.share * count) < 1
    assert Casting(shares).of(40, 25) == cast[40:65]


class Still:
    """Acts not at all."""

    def begin(self, mask: torch.Tensor) -> None:
        pass

    def act(self, obs: Obs) -> torch.Tensor:
        return torch.zeros(len(obs["actor"]), 1)


def test_an_episode_with_a_stale_camera_is_kept_with_invalid_steps():
    """One stale step had the episode left out as one of a diverged env."""
    env = pixel_envs(3, dropout=0.9, dropout_frames=3, stale_after=2)
    expert = Expert(name="still", identity="", disturbed=False, make=lambda seed: Still())
    rounds = Rounds(env, [expert], Casting(read_shares("zero")), CollectOptions(), seed=0, words="")
    found = [one.episode for ended in rounds.play(0, 3) for one in ended]
    assert len(found) == 3
    for one in found:
        assert one is not None
        assert one.num_steps > 2
        assert one.valid.any()
        assert not one.valid.all()


def test_an_episode_of_an_env_that_was_given_up_is_left_out():
    env = ToyEnv(Countdown((50.0, 50.0)), 2, limit=4, invalid_at={(2, 0)})
    expert = Expert(name="still", identity="", disturbed=False, make=lambda seed: Still())
    rounds = Rounds(env, [expert], Casting(read_shares("zero")), CollectOptions(), seed=0, words="")
    found = {one.number: one.episode for ended in rounds.play(0, 2) for one in ended}
    assert found[0] is None
    assert found[1] is not None


def test_a_burst_holds_one_action_in_the_worlds_that_may_be_disturbed():
    options = CollectOptions(noise=0.0, bursts=0.2, burst_steps=3, noise_seconds=np.inf)
    spec = EnvSpec(num_envs=40, device=CPU, groups={"actor": GroupSpec(shape=(1,))},
                   action_size=2, control_dt=0.1)  # fmt: skip
    mask = torch.arange(40) < 20
    disturb = Disturbance(options, spec, mask)
    rows = []
    for _ in range(2):
        disturb.begin(7)
        rows.append(torch.stack([disturb(torch.full((40, 2), 0.5)) for _ in range(60)]))
    torch.testing.assert_close(rows[0], rows[1], rtol=0, atol=0)  # the same seed, the same bursts
    played = rows[0]
    assert (played[:, 20:] == 0.5).all()
    assert played.abs().max() <= 1
    for world in range(20):
        held = (played[:, world, 0] != 0.5).tolist()
        values, counts = torch.unique_consecutive(played[:, world, 0], return_counts=True)
        whole = counts[(values != 0.5)][:-1]  # the last may be cut by the end
        assert (whole == 3).all()
        assert any(held)
