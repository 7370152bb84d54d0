"""Offline, warm-up, online: what happens in each phase, and that each of them can be resumed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import CheckpointError, ConfigError
from robot_rl.core.learner import Phase
from robot_rl.learners.sac import ActorStepsConfig, TargetConfig
from robot_rl.training.config import (
    OfflineConfig,
    PriorConfig,
    StartCheckpoint,
    StartConfig,
    TrainerConfig,
)
from robot_rl.training.prior import Prior
from robot_rl.training.runs.run_folder import RunFolder, RunName, find_runs
from robot_rl.training.schedule import hints
from tests.equality import assert_same
from tests.fakes import copied, small_sac
from tests.matrices import some
from tests.robot_rl.learners.small_offline import small_cql, small_iql
from tests.robot_rl.training.loop import Loop, ends_as_if_uninterrupted
from tests.robot_rl.training.test_prior_episodes import demonstrations

OFFLINE = OfflineConfig(updates=60, evaluation_interval=30, held_out=0.25)


def wsrl(spec: EnvSpec, seed: int) -> Any:
    return small_cql(
        spec, seed, conservatism={"calibrated": True, "online": False}, actor_interval=2,
        actor_steps=ActorStepsConfig(on_all=True), n_step=3,
        target=TargetConfig(members=2, replacement=True, entropy=False),
    )  # fmt: skip


def cal_ql(spec: EnvSpec, seed: int) -> Any:
    return small_cql(spec, seed, conservatism={"calibrated": True, "wanted_gap": 0.8})


@pytest.fixture
def before(tmp_path: Path) -> str:
    return str(demonstrations(tmp_path / "set", 8))


def settings(before: str, *, share: float = 0.0, **changes: Any) -> dict[str, Any]:
    return {
        "prior": PriorConfig(run=before, share=share), "offline": OFFLINE, "warm_up_steps": 24,
        "total_steps": 80, "evaluation_interval": 80, "make_learner": wsrl, **changes,
    }  # fmt: skip


class Diary:
    """A learner that writes down where its actions and its batches come from."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.phase = learner, ""
        self.story: list[tuple[str, str]] = []
        self.actions: list[torch.Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def begin_phase(self, phase: Phase) -> None:
        self.phase = phase.value
        self.learner.begin_phase(phase)

    def act(self, obs: Any, explore: bool) -> torch.Tensor:
        self.actions.append(self.learner.act(obs, explore))
        self.story.append((self.phase, "act"))
        return self.actions[-1]

    def update(self, batch: Any) -> Any:
        source = batch.extra.get("source")
        kind = "alone" if source is None else f"mixed {int(source.sum())}"
        self.story.append((self.phase, f"update {kind}"))
        return self.learner.update(batch)


def told(folder: Path, **changes: Any) -> tuple[list[tuple[str, str]], Loop, Diary]:
    diaries: list[Diary] = []
    loop = Loop(folder, wrap=lambda one: diaries.append(Diary(one)) or diaries[0], **changes)
    assert loop.trainer.run()
    return diaries[0].story, loop, diaries[0]


@pytest.mark.slow
def test_wsrl_learns_offline_then_acts_with_its_policy_then_learns_from_its_own_alone(
    tmp_path, before
):
    story, loop, diary = told(tmp_path / "run", interval_seconds=0.0, **settings(before))
    phases = [record["train/phase"] for record in loop.records]
    assert phases == sorted(phases)
    assert set(phases) == {0.0, 1.0, 2.0}
    for name in ("q_data", "q_random", "q_policy", "td_error", "held_out_td_error"):
        assert all(f"train/{name}" in record for record in loop.records[: phases.count(0.0)])
    assert story[:60] == [("offline", "update alone")] * 60
    assert story[60:66] == [("warm_up", "act")] * 6  # 24 env-steps of 4 worlds, no update
    # The phase turns once the last warm-up step is stored: it is learned from beside the next one.
    online = story[66:]
    assert {phase for phase, _ in online} == {"online"}
    assert online[:3] == [("online", "act")] + [("online", "update alone")] * 2
    assert {what for _, what in online} == {"act", "update alone"}
    assert sum(what == "act" for _, what in story) == 20
    own = loop.trainer.replay.strided_sample(999)
    drawn = torch.cat(diary.actions)[-len(own.action) :]
    assert {tuple(one) for one in own.action.tolist()} == {tuple(one) for one in drawn.tolist()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "share"), some([(cal_ql, 0.25)], [(wsrl, 0.0), (small_iql, 0.25)])
)
def test_a_run_stopped_in_every_phase_resumes_bit_equal(tmp_path, before, make, share):
    ends_as_if_uninterrupted(  # offline, in the warm-up, online
        tmp_path, [20, 72, 100], **settings(before, share=share, make_learner=make)
    )


@pytest.mark.slow
def test_an_offline_run_without_steps_is_evaluated_and_can_go_online_later(tmp_path, before):
    whole = Loop(tmp_path / "whole", **settings(before))
    assert whole.trainer.run()
    alone = Loop(tmp_path / "parts", **settings(before, total_steps=0))
    assert alone.trainer.run()
    assert list(alone.evaluations()) == [30, 60]
    assert alone.trainer.step == 60
    later = Loop(tmp_path / "parts", seed=7, **settings(before)).resume()
    assert later.trainer.run()
    assert_same(copied(later.learner.state_dict()), copied(whole.learner.state_dict()))


def test_held_out_episodes_are_never_learned_from(tmp_path, before):
    prior = Loop(tmp_path / "run", **settings(before)).trainer.stored["prior"]
    assert isinstance(prior, Prior)
    assert prior.held_out is not None
    kept, apart = (replay.strided_sample(999).action for replay in (prior.replay, prior.held_out))
    assert (len(apart), len(kept)) == (18, 54)  # two of eight episodes of nine steps
    assert not {tuple(row) for row in kept.tolist()} & {tuple(row) for row in apart.tolist()}


def run_of(folder: Path, loop: Loop) -> str:
    """A run's folder around the checkpoints of a miniature loop."""
    run = RunFolder.create(folder, RunName(task="t", robot="r", learner="l", seed=0), {}, {})
    run.close()
    loop.store.folder.rename(run.checkpoints)
    return str(run.path)


@pytest.mark.slow
def test_a_run_begins_with_the_learner_of_another_and_its_optimiser(tmp_path, before):
    offline = Loop(tmp_path / "offline", **settings(before, total_steps=0))
    offline.trainer.run()
    start = StartConfig(run=run_of(tmp_path / "runs", offline))
    online = {"total_steps": 80, "warm_up_steps": 24, "make_learner": wsrl, "start": start}
    other = Loop(tmp_path / "other", seed=5, **online)
    other.trainer.begin()
    mine, theirs = copied(other.learner.state_dict()), copied(offline.learner.state_dict())
    assert not torch.equal(mine.pop("generator"), theirs.pop("generator"))  # a stream of its own
    assert_same(mine, theirs)


@pytest.mark.slow
def test_of_a_folder_of_runs_the_newest_with_a_checkpoint_is_begun_with(tmp_path, before, caplog):
    caplog.set_level("INFO")
    kept = settings(before, total_steps=0)
    for seed in (1, 2):
        one = Loop(tmp_path / f"offline_{seed}", **kept, seed=seed)
        one.trainer.run()
        newest = run_of(tmp_path / "runs", one)
    name = RunName(task="t", robot="r", learner="l", seed=3)
    RunFolder.create(tmp_path / "runs", name, {}, {}).close()  # has saved nothing
    start = StartConfig(run=str(tmp_path / "runs"))
    online = {"total_steps": 80, "warm_up_steps": 24, "make_learner": wsrl}
    other = Loop(tmp_path / "other", start=start, **online)
    other.trainer.begin()
    mine, theirs = other.learner.policy().state_dict(), one.learner.policy().state_dict()
    assert_same(mine, theirs)
    assert f"begins with the learner of {newest}, step 60" in caplog.text
    (Path(newest) / "checkpoints/best.json").unlink()
    best = StartConfig(run=start.run, checkpoint=StartCheckpoint.best)
    older = find_runs(start.run)[0]
    step = json.loads((older / "checkpoints/best.json").read_bytes())["step"]
    Loop(tmp_path / "third", start=best, **online).trainer.begin()
    assert f"begins with the learner of {older}, step {step}" in caplog.text
    (older / "checkpoints/best.json").unlink()
    with pytest.raises(ConfigError, match=r"was scored; take training.start.checkpoint=latest"):
        Loop(tmp_path / "fourth", start=best, **online).trainer.begin()


@pytest.mark.slow
def test_a_learner_that_does_not_fit_is_refused_with_both_sides(tmp_path, before):
    offline = Loop(tmp_path / "o", **settings(before, total_steps=0, make_learner=small_iql))
    offline.trainer.run()
    run = run_of(tmp_path / "runs", offline)
    with pytest.raises(ConfigError, match=r"does not fit this one \(.*expected the same networks"):
        Loop(tmp_path / "a", start=StartConfig(run=run)).trainer.run()
    with pytest.raises(ConfigError, match=r"none.*(no run|not a run|does not exist)"):
        Loop(tmp_path / "b", start=StartConfig(run=str(tmp_path / "none"))).trainer.run()
    name = RunName(task="e", robot="r", learner="l", seed=0)
    empty = RunFolder.create(tmp_path / "runs", name, {}, {})
    empty.close()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        Loop(tmp_path / "c", start=StartConfig(run=str(empty.path))).trainer.run()


def test_a_plain_sac_is_not_trained_offline(tmp_path, before):
    """Forks of WSRL did so by mistake: critics believe in actions that nobody has tried."""
    with pytest.raises(ConfigError, match="take learner=cql, cal_ql, wsrl, iql, qc, silri or expo"):
        Loop(tmp_path / "run", **settings(before, make_learner=small_sac))


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (TrainerConfig, {"offline": OfflineConfig(updates=5)}, "training.prior.run is empty"),
        (TrainerConfig, {"total_steps": 0}, "0 needs training.offline.updates above 0"),
        (TrainerConfig, {"prior": PriorConfig(run="x", share=0.0)}, "share=0 leaves nothing"),
        (OfflineConfig, {"updates": -1}, r"training\.offline\."),
        (OfflineConfig, {"held_out": 0.9}, r"training\.offline\."),
    ],
)
def test_loops_that_make_no_sense_are_refused(config, changes, message):
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def history(**curves: list[float]) -> list[dict[str, float]]:
    good = {
        "q_data": [1.0, 2.0, 3.0, 3.0], "q_random": [0.0] * 4, "td_error": [1.0, 0.1, 0.05, 0.04],
        "held_out_td_error": [1.0, 0.1, 0.06, 0.05],
    }  # fmt: skip
    return [
        {"updates": 10.0 * i, **{name: curve[i] for name, curve in {**good, **curves}.items()}}
        for i in range(4)
    ]


@pytest.mark.parametrize(
    ("curves", "said"),
    [
        ({}, ""),
        ({"q_data": [1.0, 3.0, 3.2, 3.1]}, ""),  # still near its peak
        ({"q_data": [1.0, 3.0, 2.0, 1.5]}, "peaked at 3 after 10 updates and is 1.5 now"),
        ({"held_out_td_error": [1.0, 0.2, 0.2, 0.4]}, "is 10.0 times that of the others"),
        ({"td_error": [4.0, 4.0, 4.0, 4.0], "held_out_td_error": [4.0] * 4}, "underfitted"),
        ({"q_random": [0.0, 1.0, 2.0, 4.0]}, "nobody has tried count more (4)"),
    ],
)
def test_each_failure_of_an_offline_phase_has_its_hint(curves, said):
    found = hints(history(**curves))
    assert len(found) == bool(said)
    assert not said or said in found[0]
    assert hints(history(**curves)[:2]) == []  # too few to say
