"""The commands over foreign environments: trained, resumed, evaluated, and what has no meaning."""

import json
import os
from pathlib import Path

import gymnasium
import pytest

from configs.compose import from_plain
from policies.env_policy import load_policy
from robot_rl.training.reporting.metrics import read_metrics
from robot_rl.training.runs.run_folder import RunFolder
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.isaaclab_double import LIMIT, Episodes, installed
from tests.matrices import some
from tests.robot_rl.cli.tiny_run import FOREIGN, only_run

pytestmark = pytest.mark.slow

TINY = ("env=gymnasium", *FOREIGN)
HOPPER = (*TINY, "env.id=Hopper-v5", "env.kwargs.max_episode_steps=20", "env.engine=gymnasium")


def test_cartpole_is_learned_by_choices_resumed_evaluated_and_exported(command, train_only, here):
    learner = ("learner=discrete_sac", "learner.batch_size=16")
    command("train", *TINY, "env.id=CartPole-v1", *learner)
    run = only_run()
    train_only(f"resume={run}", "training.total_steps=600")
    assert command("evaluate", f"run={run}", "episodes=2", "out=result").out
    assert json.loads(Path("result/result.json").read_text())["mean_return"] >= 8
    told = command("export", f"run={run}").out
    assert "max action error 0" in told
    policy, env = load_policy(run / "bundle"), gymnasium.make("CartPole-v1")
    assert (policy.spec.choices, policy.spec.action_shape, policy.spec.low) == (2, [], [])
    observation, _ = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended and total < 500:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, ended = total + float(reward), terminated or truncated
    assert total >= 8


def test_hopper_is_trained_resumed_and_evaluated_by_its_id(command, train_only, refused, here):
    answer = command("train", *HOPPER)
    run = only_run()
    assert run.name.endswith("Hopper-v5_gymnasium_sac_s0")
    assert "a resumed run will begin new episodes" in answer.out
    assert "mean of 2 validation episodes" in answer.out
    assert f"robot-rl export run={run}" in " ".join(answer.out.split())
    assert "robot-rl deploy" not in answer.out  # there is no robot to deploy it on
    assert "flight" not in answer.out
    config = from_plain(RunFolder.open(run).config())
    assert (config.env.id, config.task, config.robot) == ("Hopper-v5", None, None)
    records = read_metrics(run / "metrics.jsonl")
    assert not any("success" in key for record in records for key in record)

    longer = "training.total_steps=600"
    answer = train_only(f"resume={run}", "env=gymnasium", longer)
    assert "the state of these envs cannot be saved: all begin new episodes" in answer.out
    assert CheckpointStore(run / "checkpoints", read_only=True).steps()[-1] == 600

    answer = command("evaluate", f"run={run}", "episodes=3", "video=true", "out=result")
    assert "not judged by this environment; 3 episodes" in answer.out
    film = Path("result/videos/episode.mp4")
    assert film.is_file() or "none: the environment draws nothing here" in answer.out
    result = json.loads(Path("result/result.json").read_text())
    assert result["episodes"] == 3
    assert result["mean_return"] > 0
    assert Path("result/plot.png").stat().st_size > 5_000

    told = refused("train", f"resume={run}", "env.id=Walker2d-v5")
    assert "belong to the environment as it was" in told
    told = command("export", f"run={run}").out
    assert "verified against PyTorch: 1 envs x 100 steps" in told
    assert "robot_rl.load_policy" in told
    assert load_policy(run / "bundle").spec.environment == "Hopper-v5"
    Path("somewhere").mkdir()
    told = refused(
        "train", "env=gymnasium", "env.id=Hopper-v5", "experiment=hopper", "learner=cal_ql",
        "learner.conservatism.failure_reward=-1", "training.prior.run=somewhere",
        "training.offline.updates=10",
    )  # fmt: skip
    assert "name what does with env.success=..." in told
    assert "played in our own envs alone" in refused(
        "evaluate", f"run={run}", "bundle=somewhere", "episodes=2"
    )


def test_worlds_of_our_engine_are_resumed_where_they_stood(train_only, here):
    batch = tuple(entry for entry in HOPPER if entry != "env.engine=gymnasium")
    answer = train_only(*batch)
    assert "begin new episodes" not in answer.out
    answer = train_only(f"resume={only_run()}", "env=gymnasium", "training.total_steps=600")
    assert "begin new episodes" not in answer.out
    assert "eval/x_velocity" in read_metrics(only_run() / "metrics.jsonl")[-1]


def test_success_that_an_environment_tells_is_trained_for(command, here):
    answer = command("train", *TINY, "env.id=tests.gymnasium_worlds:robot_rl_tests/Drift-v0")
    assert "95 % interval" in answer.out
    assert read_metrics(only_run() / "metrics.jsonl")[-1]["eval/success"] >= 0


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["env.id=Hoper-v5"], "is unknown to Gymnasium; nearest: Hopper-v5"),
        (["env.id=gymnasium.envs:Hoper-v5"], "; nearest: gymnasium.envs:Hopper-v5"),
        (["env.id=Pendulum-v1", "task=hover"], "'task=hover' has no meaning with env=gymnasium"),
        (["env.id=Pendulum-v1", "robot.plant=paper"], "'robot.plant=paper' has no meaning"),
        (["env.id=CartPole-v1"], "one of 2 choices; expected learner=discrete_sac"),
        (["env.id=Pendulum-v1", "learner=discrete_sac"], "has 1 numbers; expected another"),
        (["experiment=smoke"], "the task of the experiment has no meaning"),
    ],
)
def test_mistake_is_one_sentence_and_leaves_nothing(refused, here, overrides, told):
    assert told in refused("train", *TINY, *overrides)
    assert os.listdir(here) == []


DRIFT = ("env=isaaclab", "env.id=Isaac-Drift-Manager-v0", *FOREIGN, "device=cpu")


@pytest.fixture(params=some([True], [False]), ids=["3.x", "2.x"])
def lab(request, tmp_path_factory):
    with installed(tmp_path_factory.mktemp("lab"), modern=request.param):
        yield


def test_a_task_of_isaac_lab_is_trained_resumed_and_evaluated_by_its_id(lab, command, here):
    answer = command("train", *DRIFT, "env.success=[time_out]", "env.metrics=[Episode/length]")
    run = only_run()
    assert run.name.endswith("Isaac-Drift-Manager-v0_isaaclab_sac_s0")
    assert "a resumed run will begin new episodes" in answer.out
    assert "robot-rl export" not in answer.out
    records = read_metrics(run / "metrics.jsonl")
    # One row of four worlds after each of two evaluations; the second ends the run.
    assert [record["rollout/invalid_steps"] for record in records][-1] == 4
    told = [record for record in records if "eval/success" in record]
    assert len(told) == 2
    assert 0 < told[-1]["eval/Episode/length"] <= LIMIT
    assert Episodes.open == 0

    answer = command("train", f"resume={run}", "training.total_steps=600")
    assert "the state of these envs cannot be saved: all begin new episodes" in answer.out
    assert CheckpointStore(run / "checkpoints", read_only=True).steps()[-1] == 600

    answer = command("evaluate", f"run={run}", "episodes=3", "out=result")
    assert json.loads(Path("result/result.json").read_text())["episodes"] == 3
