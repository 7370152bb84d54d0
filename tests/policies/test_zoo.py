"""Policies that ship: whole, small, for the robots of today, and as good as their cards say."""

import json
import math
import shutil
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from PIL import Image

import policies.zoo.catalog
import scripts.zoo
from configs.compose import compose, to_plain
from policies.bundle import load_bundle
from policies.zoo.catalog import (
    PREFIX,
    ROOT,
    ZooCard,
    bundle_folder,
    place_beside,
    read_card,
    zoo_names,
)
from robot_rl.cli.api import TrainedRun
from robot_rl.cli.evaluation import EvaluateOptions, Trial, run_trial
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.training.runs.run_folder import RunFolder, RunName
from scripts.film_grid import grid_columns
from scripts.zoo import ENTRIES, FILMS, PAGE, refuse_other, table

NAMES = zoo_names()


def test_every_policy_is_in_the_list_of_its_trainings_and_they_are_small():
    assert set(NAMES) == set(ENTRIES)
    sizes = [sum(f.stat().st_size for f in (ROOT / name).iterdir()) for name in NAMES]
    assert max(sizes) < 2_000_000
    assert sum(sizes) < 20_000_000


def test_page_has_the_table_of_the_cards_and_a_picture_of_each():
    page = PAGE.read_text()
    assert table() in page
    for name in NAMES:
        assert f"images/zoo/{name}.png" in page
    assert f"images/{FILMS.name}" in page
    assert FILMS.stat().st_size < 2_000_000
    with Image.open(FILMS) as picture:
        width, height = picture.size
    columns = grid_columns(len(NAMES))
    assert width * 128 * math.ceil(len(NAMES) / columns) == height * 192 * columns


@pytest.mark.parametrize("name", NAMES)
def test_card_is_of_its_bundle_and_its_recorded_sequences_come_back(name):
    card, runner = read_card(name), load_bundle(PREFIX + name)  # replays them
    assert card.robot == runner.spec.robot.name
    assert card.sees == [*dict.fromkeys(term.term for term in runner.spec.terms)]
    origin = json.loads((ROOT / name / "provenance.json").read_text())
    assert (card.task, card.steps) == (origin["run"]["task"], origin["checkpoint"]["step"])
    assert card.episodes == 1000
    low, high = card.success_interval
    assert low <= card.success <= high
    assert card.training == ENTRIES[name].command
    assert not origin["git"]["dirty"]
    written = "".join((ROOT / name / f).read_text() for f in ("card.json", "provenance.json"))
    assert "/root" not in written
    assert "/home" not in written


@pytest.mark.parametrize("name", NAMES)
def test_policy_is_for_the_robot_of_today(name):
    """As `robot.version` says; a robot that has changed needs another policy."""
    card = read_card(name)
    robot = compose([f"robot={card.robot}"]).config.robot.spec
    load_bundle(PREFIX + name, robot=robot, verify=False)
    newer = replace(robot, version=robot.version + 1)
    with pytest.raises(SpecMismatchError, match="version"):
        load_bundle(PREFIX + name, robot=newer, verify=False)


def played(name: str, **changes: Any) -> Trial:
    torch.set_num_threads(1)
    options = EvaluateOptions(bundle=str(bundle_folder(PREFIX + name)), episodes=32, video=False)
    trial = run_trial(replace(options, **changes), ())
    trial.env.close()
    assert trial.policy is None
    return trial


_SELDOM = 0.3
"""Share of episodes below which all of a few may be without it."""


def deviations(trial: Trial, card: ZooCard) -> list[str]:
    """Numbers of a few episodes that those of a card make unlikely: 1 in 10,000 each at most.

    Other processors round otherwise and play other episodes, which are drawn alike. So successes
    are judged by the binomial distribution, too few by the lower end of the card's interval and too
    many by the upper one; and means by five of their standard errors and a tenth of the card's
    number. Of what happens seldom and did not here, nothing is said.
    """
    count = trial.result.success.numel()
    won, (low, high) = int(trial.result.success.sum()), card.success_interval
    likely = [binomial(count, low, range(won + 1)), binomial(count, high, range(won, count + 1))]
    found = [] if min(likely) > 1e-4 else [f"success {won} of {count}, card {card.success}"]
    for name, expected in card.metrics.items():
        values = trial.result.metrics[name][trial.result.complete]
        values = values[values.isfinite()].double()
        if not expected or (not values.any() and abs(expected) < _SELDOM):
            continue
        error = float(values.std()) / math.sqrt(len(values))
        mean = float(values.mean())
        if not abs(mean - expected) <= 5 * error + 0.1 * abs(expected):
            found.append(f"{name} {mean:.4g}, card {expected:.4g}")
    return found


def binomial(count: int, share: float, successes: range) -> float:
    """Probability of one of these numbers of successes."""
    terms = (math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in successes)
    return sum(terms)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_policy_does_what_its_card_says(name):
    assert deviations(played(name), read_card(name)) == []


@pytest.mark.slow
def test_policies_that_are_worse_or_better_than_their_card_are_noticed():
    card, trial = read_card("panda-reach"), played("panda-reach")
    assert deviations(trial, replace(card, metrics={"mean_distance": 0.008})) == [
        f"mean_distance {float(trial.result.metrics['mean_distance'].mean()):.4g}, card 0.008"
    ]
    modest = replace(card, success=0.6, success_interval=(0.57, 0.63))
    assert deviations(trial, modest) == ["success 32 of 32, card 0.6"]
    idle = deviations(played("panda-reach", agent="zero"), card)
    assert idle[0] == "success 0 of 32, card 1.0"
    assert any(told.startswith("mean_distance") for told in idle)
    assert binomial(2, 0.5, range(1, 3)) == pytest.approx(0.75)


def test_names_that_are_unknown_are_told_and_others_are_paths(tmp_path):
    with pytest.raises(ConfigError, match=r"policy of the zoo 'go2-velocty' is unknown \(did you"):
        bundle_folder("zoo:go2-velocty")
    assert bundle_folder(tmp_path) == tmp_path
    assert place_beside(tmp_path / "bundle") == tmp_path
    assert str(place_beside(PREFIX + NAMES[0])) == "runs"


def test_damaged_card_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(policies.zoo.catalog, "ROOT", tmp_path)
    shutil.copytree(ROOT / NAMES[0], tmp_path / NAMES[0])
    (tmp_path / NAMES[0] / "card.json").write_text('{"title": "flies"}')
    with pytest.raises(ConfigError, match=r"card\.json lacks 'task'"):
        read_card(NAMES[0])


@pytest.mark.slow
def test_a_run_of_another_command_does_not_replace_a_policy(tmp_path):
    entry = ENTRIES["panda-reach"]
    config = to_plain(compose([*entry.words, "video=false", f"runs={tmp_path}"]).config)

    def run_of(**changes):
        name = RunName(task="reach", robot="panda", learner="sac", seed=0)
        with RunFolder.create(tmp_path, name, {**config, **changes}, {}) as run:
            return TrainedRun(run.path)

    refuse_other(entry, run_of(device="cuda", threads=7))
    with pytest.raises(ConfigError, match=r"robot-rl train task=reach.*: num_envs, seed differ"):
        refuse_other(entry, run_of(seed=3, num_envs=3))


@pytest.mark.slow
def test_a_student_is_of_its_command_whatever_its_teacher_sees(tmp_path):
    entry = ENTRIES["g1-stand-up"]
    collect, teach, train = entry.command.split(" && ")
    assert collect.startswith("robot-rl collect ")
    assert "'task.randomization.payload=[0,0]'" in collect  # zsh would look for files otherwise
    assert teach.endswith("runs=runs/teachers")
    assert train.endswith("learner.teacher=runs/teachers")
    config = to_plain(compose([*entry.words, "video=false", f"runs={tmp_path}"]).config)
    config["task"]["critic"] = config["task"]["actor"]  # as a run does, of its teacher's terms

    def run_of(**changes):
        name = RunName(task="stand_up", robot="g1", learner="distill", seed=0)
        with RunFolder.create(tmp_path, name, {**config, **changes}, {}) as run:
            return TrainedRun(run.path)

    refuse_other(entry, run_of())
    found = "runs/teachers/one/checkpoints/step_000000000800"
    refuse_other(entry, run_of(learner={**config["learner"], "teacher": found}))
    with pytest.raises(ConfigError, match="learner differ"):
        refuse_other(entry, run_of(learner={**config["learner"], "teacher": "runs/others"}))


def test_a_policy_that_ships_stays_where_another_cannot_be_exported(tmp_path, monkeypatch):
    (tmp_path / "zoo" / "panda-reach").mkdir(parents=True)
    (tmp_path / "zoo" / "panda-reach" / "card.json").write_text("{}")
    monkeypatch.setattr(scripts.zoo, "ROOT", tmp_path / "zoo")
    monkeypatch.setattr(scripts.zoo, "refuse_other", lambda entry, run: None)

    class Broken:
        def export(self, folder):
            folder.mkdir()
            raise ConfigError("there is no checkpoint")

    for _ in range(2):
        with pytest.raises(ConfigError, match="no checkpoint"):
            scripts.zoo.add("panda-reach", cast("TrainedRun", Broken()))
    assert [path.name for path in (tmp_path / "zoo").iterdir()] == ["panda-reach"]
    with pytest.raises(ConfigError, match="did you mean 'panda-reach'"):
        scripts.zoo.main(["train", "crazyflie-hover", "panda-reech"])
