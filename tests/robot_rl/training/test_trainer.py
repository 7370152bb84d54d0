"""The training loop: what it does when, and what it leaves behind when it cannot go on."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from robot_rl.core.errors import ConfigError, NonFiniteError
from robot_rl.core.transition import Batch
from robot_rl.training.config import StartConfig, TrainerConfig
from robot_rl.training.reporting.metrics import share_of_time
from robot_rl.training.storage.checkpoint import CheckpointStore, read_manifest
from robot_rl.training.trainer import Clock, FiniteWatch, not_finite
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, random_batch, small_sac
from tests.robot_rl.training.loop import SETTINGS, Loop


class Spoils:
    """A learner of which an update spoils something."""

    def __init__(self, learner: Any, spoil: Callable[[Any, dict[str, Tensor]], None]) -> None:
        self._learner, self._spoil = learner, spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    def update(self, batch: Any) -> tuple[dict[str, Tensor], None]:
        metrics, _ = self._learner.update(batch)
        self._spoil(self._learner, metrics)
        return metrics, None


def breaks_after(
    updates: int, on_break: Callable[[], None] = lambda: None
) -> Callable[[Any], Spoils]:
    """The loss becomes NaN, and so do the weights, as after a step with a NaN gradient."""

    def spoil(learner: Any, metrics: dict[str, Tensor]) -> None:
        if learner.updates > updates:
            for parameter in learner.actor.parameters():
                parameter.detach().fill_(torch.nan)
            metrics["critic_loss"] = torch.tensor(torch.nan)
            on_break()

    return lambda learner: Spoils(learner, spoil)


def poisons_weights(update: int) -> Callable[[Any], Spoils]:
    """One update leaves weights that are no numbers, and a loss that is."""

    def spoil(learner: Any, metrics: dict[str, Tensor]) -> None:
        if learner.updates == update:
            next(learner.critic.parameters()).detach()[0] = torch.nan

    return lambda learner: Spoils(learner, spoil)


@pytest.mark.parametrize("compile", [False, True])
def test_the_learner_decides_whether_samples_are_compiled(tmp_path, compile):
    loop = Loop(tmp_path, make_learner=lambda spec, seed: small_sac(spec, seed, compile=compile))
    assert loop.trainer.replay.compile is compile


@pytest.mark.slow
def test_a_run_to_its_end_says_so_and_ends_with_a_scored_checkpoint(tmp_path):
    loop = Loop(tmp_path)
    assert loop.trainer.run() is True
    assert loop.trainer.collector.env_steps == 240
    assert loop.env.steps == 60
    assert loop.learner.updates == 50 * 2  # beside steps 11 to 60 of the worlds together
    assert loop.store.steps() == list(loop.evaluations()) == [100, 200, 240]
    newest = loop.store.load()
    assert newest.step == 240
    assert newest.score == pytest.approx(loop.evaluations()[240]["eval/success"])


@pytest.mark.slow
def test_checkpoints_between_evaluations_are_unscored_and_change_nothing(tmp_path):
    """There was none before the first evaluation: a run killed until then was lost."""
    loop = Loop(tmp_path / "often", checkpoint_interval=30)
    plain = Loop(tmp_path / "plain")
    for one in (loop, plain):
        one.trainer.run()
    assert loop.store.steps() == sorted({32, 60, 92, 120, 152, 180, 212, 100, 200, 240})
    scored = [step for step in loop.store.steps() if read_score(loop.store, step) is not None]
    assert scored == plain.store.steps() == [100, 200, 240]
    assert loop.store.best() == loop.store.folder / plain.store.load("best").path.name
    assert loop.evaluations() == plain.evaluations()
    assert_same(loop.learner.state_dict(), plain.learner.state_dict())
    # Killed at any moment, it goes on from the newest of them.
    loop.store.discard_after(152)
    again = Loop(tmp_path / "often", seed=9).resume()
    assert again.trainer.step == 152
    again.trainer.run()
    assert_same(again.learner.state_dict(), plain.learner.state_dict())


def read_score(store: CheckpointStore, step: int) -> float | None:
    return store.load(store.folder / f"step_{step:012d}").score


@pytest.mark.slow
def test_a_finished_run_has_nothing_left_to_do_and_may_be_prolonged(tmp_path):
    Loop(tmp_path).trainer.run()
    again = Loop(tmp_path).resume()
    before = (again.store.folder / "step_000000000240").stat().st_mtime_ns
    assert again.trainer.run() is True
    assert again.records == []
    assert (again.store.folder / "step_000000000240").stat().st_mtime_ns == before
    longer = Loop(tmp_path, total_steps=280).resume()
    assert longer.trainer.run() is True
    assert longer.store.load().step == 280


@pytest.mark.slow
def test_a_nan_loss_is_named_and_no_checkpoint_is_written_from_it(tmp_path):
    loop = Loop(tmp_path, wrap=breaks_after(50))
    with pytest.raises(
        NonFiniteError, match=r"^train/critic_loss, then .*became NaN or infinite by step"
    ):
        loop.trainer.run()
    assert loop.store.steps() == [100]
    weights = loop.store.load().state["learner"]["actor"]["network.0.weight"]
    assert weights.isfinite().all()


def test_a_stop_after_a_nan_loss_saves_nothing(tmp_path):
    wrap = breaks_after(30, on_break=lambda: loop.trainer.stop())
    loop = Loop(tmp_path, wrap=wrap, evaluation_interval=80)
    with pytest.raises(NonFiniteError, match="train/critic_loss"):
        loop.trainer.run()
    assert loop.store.steps() == [80]


@pytest.mark.slow
def test_weights_that_the_last_update_before_a_checkpoint_broke_are_not_saved(tmp_path):
    # 40 random steps of four worlds, then two updates beside each: the last of step 100, and of 200
    for update, saved, told in ((30, [], "there is no ch"), (80, [100], "the last checkpoint is")):
        loop = Loop(tmp_path / told, wrap=poisons_weights(update))
        with pytest.raises(
            NonFiniteError, match=rf"^the learner\.critic.* NaN or infinite by step \d00; {told}"
        ):
            loop.trainer.run()
        assert loop.store.steps() == saved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "settings", "told"),
    [
        ("critic", {"updates_per_step": 0}, "critic was NaN in world 2"),
        ("reward", {}, "^sampled reward, then train/critic_loss .*reward was NaN in world 2"),
        ("critic", {}, r"became NaN .*critic was NaN in world 2"),
    ],
)
def test_a_nan_in_the_worlds_is_named_before_what_it_spoils_and_earlier_checkpoints_stay(
    tmp_path, where, settings, told
):
    loop = Loop(tmp_path, env={"nan_at": {where: (27, 2)}}, **settings)
    with pytest.raises(NonFiniteError, match=told):
        loop.trainer.run()
    assert loop.store.steps() == [100]
    assert loop.store.load().step == 100


@pytest.mark.slow
def test_faulted_worlds_do_not_disturb_the_others(tmp_path):
    faults = {(12, 0), (13, 3), (30, 1), (31, 1), (59, 2)}
    loop = Loop(tmp_path, env={"invalid_at": faults}, interval_seconds=0.0)
    assert loop.trainer.run() is True
    for record in loop.records:
        assert all(value == value for value in record.values())  # no NaN anywhere
    for parameter in loop.learner.actor.parameters():
        assert parameter.isfinite().all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("total_steps", 0), ("evaluation_interval", 0), ("random_steps", -1),
        ("checkpoint_seconds", -1.0),
    ],
)  # fmt: skip
def test_loops_that_cannot_run_are_refused(name, value):
    with pytest.raises(ConfigError, match=rf"training\.{name} must be .* got {value}"):
        TrainerConfig(**{**SETTINGS, name: value})


def test_a_run_that_ends_before_its_first_update_says_so():
    """It finished, and its policy was as drawn."""
    few = {**SETTINGS, "total_steps": 39}
    said = "total_steps=39 is below training.random_steps=40"
    assert said in TrainerConfig(**few).unlearned
    assert TrainerConfig(**{**few, "updates_per_step": 0}).unlearned == ""
    assert TrainerConfig(**SETTINGS).unlearned == ""
    warm = TrainerConfig(total_steps=9, warm_up_steps=10, start=StartConfig(run="x"))
    assert "total_steps=9 is below training.warm_up_steps=10" in warm.unlearned


def test_shares_of_wall_time_leave_saving_to_nobody(monkeypatch):
    """Time that went into checkpoints was counted as collecting and learning, in proportion."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Clock()
    clock.start(0)
    for what, seconds in (("collect", 1.5), ("learn", 0.5), ("aside", 6.0)):
        with clock.spent_on(what):
            now[0] += seconds
    record = clock.pop(100)
    assert record["time/steps_per_second"] == 50.0
    assert share_of_time([{"step": 100, "seconds": 8.0, **record}], "collect") == 1.5 / 8


BAD = [float("nan"), float("inf"), -float("inf")]


def batch() -> Batch:
    return random_batch(ToyEnv(LinearWorld()).spec, 8)


@pytest.mark.parametrize(
    ("name", "bad"),
    [("reward", BAD[0]), ("action", BAD[1]), ("obs.actor", BAD[2]), ("next_obs.critic", BAD[0])],
)
def test_one_number_in_a_batch_is_found_by_name(name, bad):
    watch, spoilt = FiniteWatch(), batch()
    field, _, group = name.partition(".")
    tensor = getattr(spoilt, field)
    (tensor[group] if group else tensor)[5] = bad
    watch.see_batch(batch())
    watch.see_metrics({"loss": torch.tensor(1e38), "entropy": torch.tensor(-1e38)})
    assert watch.found() == []
    watch.see_batch(spoilt)
    watch.see_batch(batch())  # sticky: what comes after does not excuse it
    assert watch.found() == [[f"sampled {name}"]]


def test_what_was_bad_first_is_named_first():
    watch, spoilt = FiniteWatch(), batch()
    nan, one = torch.tensor(float("nan")), torch.tensor(1.0)
    watch.see_batch(spoilt)
    watch.see_metrics({"critic_loss": one, "actor_loss": nan, "entropy": nan})
    spoilt.action[0] = float("nan")  # a broken policy acts; it was not the actions that broke it
    watch.see_batch(spoilt)
    watch.see_metrics({"critic_loss": nan, "actor_loss": nan, "entropy": nan})
    watch.see_metrics({"critic_loss": nan})
    expected = [["actor_loss", "entropy"], ["sampled action"], ["critic_loss"]]
    assert watch.found() == expected


@pytest.mark.parametrize("bad", BAD)
def test_every_tensor_of_a_state_is_looked_at_and_named_by_its_way(bad):
    spoilt = torch.tensor([0.0, bad])
    state = {"actor": {"weight": torch.ones(2)}, "moments": [torch.ones(1), {"first": spoilt}],
             "updates": 3, "rows": torch.tensor([1, 2]), "empty": torch.zeros(0)}  # fmt: skip
    assert not_finite(state, "the learner") == ["the learner.moments.1.first"]
    assert not_finite({"updates": 3}, "the learner") == []


class Strict(LinearWorld):
    """Fewer of its episodes succeed."""

    def success(self, state: Tensor) -> Tensor:
        return state[:, 1] > 0.5


@pytest.mark.slow
def test_the_best_checkpoint_is_chosen_by_the_worst_condition(tmp_path):
    world = Strict(bound=0.9, reward_names=("first", "second"))
    changed = {"a strict judge": ToyEnv(world, 6, limit=7, seed=3)}
    loop = Loop(tmp_path / "two", changed=changed)
    plain = Loop(tmp_path / "one")
    for one in (loop, plain):
        assert one.trainer.run() is True
    assert_same(loop.learner.state_dict(), plain.learner.state_dict())
    for step, found in loop.evaluations().items():
        home, there = found["eval/success"], found["eval/a_strict_judge/success"]
        assert found["eval/worst_success"] == min(home, there)
        assert home == plain.evaluations()[step]["eval/success"]
        assert read_score(loop.store, step) == pytest.approx(min(home, there))
    assert any(f["eval/worst_success"] < f["eval/success"] for f in loop.evaluations().values())
    manifest = read_manifest(loop.store.path_of(240))
    assert manifest["condition"] in ("as trained", "a strict judge")
    assert "condition" not in read_manifest(plain.store.path_of(240))
