"""`robot-rl reward`: from episodes to a training, and what is said where something is wrong."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from configs.schema import make_env
from robot_rl.cli.learned_reward import episode_augmenter, with_reward
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.training.reporting.metrics import read_metrics
from tests.compositions import composed
from tests.robot_rl.cli.tiny_run import TINY, assert_equal_ends, only_run, output_of
from tests.robot_rl.datasets.samples import episode
from tests.robot_rl.rewards.points import point_set

QUICK = ("hidden=16", "updates=300", "interval=50", "batch_size=64", "hold=2", "hold_window=3")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a data set of points and a reward that was trained on it."""
    root = tmp_path_factory.mktemp("made")
    point_set(root / "points")
    said = output_of(
        "reward", "train", f"data={root / 'points'}", "labels=near", f"out={root / 'near'}", *QUICK
    )
    (root / "said.txt").write_text(said)
    return root


def test_train_says_what_was_measured_and_writes_it(made):
    said = (made / "said.txt").read_text()
    assert "40 episodes" in said
    assert "on 10 episodes, 300 frames; 95 % intervals in brackets" in said
    told = json.loads((made / "near" / "reward.json").read_text())
    assert told["data"]["episodes"] == {"train": 24, "validation": 6, "holdout": 10}
    assert told["data"]["digests"] == {str(made / "points"): EpisodeDataset(made / "points").digest}
    stage = told["quality"]["stages"][0]
    assert stage["label"] == "near>=0.5"
    low, value, high = (stage["frames"]["precision"][i] for i in (1, 0, 2))
    assert 0.8 < low <= value <= high
    assert (made / "near" / "plots" / "stage_0.png").stat().st_size > 5000


def test_evaluate_warns_of_episodes_that_it_was_trained_on(command, made, tmp_path):
    said = command("reward", "evaluate", f"reward={made / 'near'}", f"data={made / 'points'}").out
    assert "it was trained on a part of these episodes" in said
    other = point_set(tmp_path / "other", first=500)
    said = command("reward", "evaluate", f"reward={made / 'near'}", f"data={other}").out
    assert "trained on" not in said
    assert "near>=0.5" in said


def test_mine_writes_the_episodes_that_fool_it(command, made, tmp_path):
    """By the label half>=2, which nothing reaches, every success of the classifier is none."""
    out = tmp_path / "fooled"
    asked = (f"reward={made / 'near'}", f"data={made / 'points'}", f"out={out}")
    said = command("reward", "mine", *asked, "labels=half>=2").out
    fooled = EpisodeDataset(out)
    assert f"{len(fooled)} of 40 episodes fool it" in said
    assert 20 <= len(fooled) < 40
    assert f"data=[{made / 'points'},{out}]" in said
    said = command("reward", "mine", *asked[:2], f"out={tmp_path / 'none'}", "labels=half>=-1").out
    assert "0 of 40 episodes fool it" in said
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["traim"], "command of reward 'traim' is unknown (did you mean 'train'?)"),
        (["train", "out=x"], "data is missing"),
        (["train", "data=POINTS", "out=x", "hiddn=8"], "option 'hiddn' is unknown (did you mean"),
        (["train", "data=POINTS", "out=x", "labels=nea"], "label 'nea' is unknown (did you mean"),
        (["train", "data=POINTS", "out=NEAR"], "exists already; choose another folder"),
        (["train", "data=none", "out=x"], "none does not exist; expected the folder of a data set"),
        (["train", "data=POINTS", "out=x", "hold=9"], "hold must lie in [1, hold_window]"),
        (["train", "data=POINTS", "out=x", "encoder=pretrained", "cameras=a"], "'pretrained' is"),
        (["evaluate", "reward=POINTS", "data=POINTS"], "there is no reward in"),
        (["evaluate", "reward=NEAR", "data=POINTS", "labels=near,half"], "has 2 stages"),
        (["mine", "reward=NEAR", "data=POINTS"], "out is missing"),
    ],
)  # fmt: skip
def test_mistakes_are_a_sentence(command, made, words, sentence):
    places = {"POINTS": str(made / "points"), "NEAR": str(made / "near")}
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    answer = command("reward", *words, exits=2)
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_a_reward_of_another_task_is_refused_before_a_run_begins(command, made, tmp_path):
    answer = command(
        "train", *TINY, f"reward.model={made / 'near'}", f"runs={tmp_path / 'runs'}", exits=2
    )
    assert "does not fit this environment: it reads 'actor' of shape (2,)" in answer.err
    assert not list((tmp_path / "runs").glob("*"))


@pytest.mark.slow
def test_a_run_learns_by_it_resumes_and_keeps_its_own_copy(command, train_only, tmp_path):
    data, reward, runs = tmp_path / "hovers", tmp_path / "upright", tmp_path / "runs"
    for expert, seed in (("scripted", 1), ("random", 2)):
        command(
            "collect", "task=hover", f"expert={expert}", "noise=0", "episodes=24", f"seed={seed}",
            f"out={data}", *(["append=true"] if seed > 1 else []),
        )  # fmt: skip
    command("reward", "train", f"data={data}", "labels=end", f"out={reward}", *QUICK)
    train_only(
        *TINY, f"reward.model={reward}", f"runs={runs}", f"training.prior.run={data}",
        "learner.reward_scale=none",
    )  # fmt: skip
    run = only_run(runs)
    shutil.rmtree(reward)
    assert (run / "reward" / "reward.json").is_file()
    records = read_metrics(run / "metrics.jsonl")
    assert any("eval/success" in record for record in records)
    train_only(f"resume={run}", "training.total_steps=2400")
    answer = command("train", f"resume={run}", "reward.weight=2", exits=2)
    assert "the stored rewards were given by this one" in answer.err
    command("evaluate", f"run={run}", "episodes=4", "video=false")

    learns_on = (
        "reward.vice.interval=100", f"reward.model={run / 'reward'}", f"runs={tmp_path / 'on'}",
    )  # fmt: skip
    from_data = ("learner.n_step=1", f"training.prior.run={data}")
    train_only(*TINY, *learns_on, *from_data)
    on = only_run(tmp_path / "on")
    train_only(f"resume={on}", "training.total_steps=2400")
    command("evaluate", f"run={on}", "episodes=4", "video=false")
    whole = [*learns_on[:2], f"runs={tmp_path / 'whole'}", "training.total_steps=2400"]
    train_only(*TINY, *whole, *from_data)
    assert_equal_ends(on, only_run(tmp_path / "whole"))
    told = command("train", *TINY, *learns_on, "learner.n_step=3", exits=2).err
    assert "pays single steps anew, and this learner sums several: set learner.n_step=1" in told


@pytest.mark.slow
def test_a_function_pays_in_simulation_and_in_stored_episodes(tmp_path):
    path = tmp_path / "reward.py"
    path.write_text("def reward(obs):\n    return obs['actor'][:, 0] + 2 * obs['actor'][:, 1]\n")
    config = composed(["task=hover", f"reward.function={path}", "reward.weight=0.5"]).config
    bare = make_env(config, num_envs=3, device=torch.device("cpu"), seed=0, evaluation=False)
    with contextlib.closing(with_reward(config, bare)) as env:
        env.reset(seed=0)
        step = env.step(torch.zeros(3, env.spec.action_size))
        seen = step.next_obs["actor"]
        assert torch.allclose(step.reward, 0.5 * (seen[:, 0] + 2 * seen[:, 1]))
        relabel = episode_augmenter(config, bare.spec)
    assert relabel is not None
    spec = DatasetSpec(groups={"actor": seen.shape[1]}, action_size=1, control_dt=0.01)
    stored = episode(1, spec=spec)
    actor = stored.obs["actor"][1:]
    assert relabel(stored).reward == pytest.approx(0.5 * (actor[:, 0] + 2 * actor[:, 1]))


def test_a_model_and_a_function_at_once_are_refused(command):
    answer = command("train", *TINY, "reward.model=a", "reward.function=b.py", exits=2)
    assert "reward.model=a and reward.function=b.py were asked for; give one of both" in answer.err
