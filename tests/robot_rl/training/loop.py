"""A whole training run in miniature: four worlds, a ring of fifteen steps, checkpoints on disk."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robot_rl.core.env import EnvSpec
from robot_rl.training.assembly import assemble_trainer
from robot_rl.training.config import TrainerConfig
from robot_rl.training.late_evaluations import EvaluationProcess
from robot_rl.training.ranks import Ranks, seed_of
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.storage.segments import SegmentStore
from tests.equality import assert_same
from tests.fakes import LinearWorld, ToyEnv, copied, small_sac

WORLDS = 4
SETTINGS: dict[str, Any] = {
    "total_steps": 240,
    "random_steps": 40,
    "updates_per_step": 2,
    "replay_capacity": 60,  # wraps after 15 steps
    "evaluation_interval": 100,
    "evaluation_episodes": 6,
    "keep_checkpoints": 50,
}
WORLD = LinearWorld(bound=0.9, reward_names=("first", "second"))


class Loop:
    """A trainer with its store and its records."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        wrap: Callable[[Any], Any] = lambda learner: learner,
        interval_seconds: float = 1e9,
        stop_at: int | None = None,
        env: Mapping[str, Any] | None = None,
        ranks: Ranks | None = None,
        make_env: Callable[..., ToyEnv] = ToyEnv,
        make_learner: Callable[[EnvSpec, int], Any] | None = None,
        world: LinearWorld = WORLD,
        changed: Mapping[str, ToyEnv] | None = None,
        beside: EvaluationProcess | None = None,
        keep_last: int = 50,
        **settings: Any,
    ) -> None:
        """Make everything anew, as a fresh process would.

        `stop_at`: env-steps at which a signal comes; `env`: changes of the training worlds;
        `ranks`: processes that train it, each with four worlds; `world`: what each of them is;
        `changed`: worlds of further conditions; `beside`: process that evaluates; `keep_last`:
        checkpoints that are kept; `settings`: of the trainer.
        """
        worlds = {"limit": 7, "truncation_rate": 0.1, "reward_weights": _ramp, **(env or {})}
        ranks = ranks or Ranks()
        self.env = make_env(world, WORLDS, seed=seed_of(seed, ranks), **worlds)
        self.learner = make_learner(self.env.spec, seed) if make_learner else small_sac(
            self.env.spec, seed, stream_seed=seed_of(seed, ranks), reduce=ranks.reduce,
            n_step=3, actor_interval=2,
        )  # fmt: skip
        self.records: list[Mapping[str, float]] = []
        segments = SegmentStore(folder / "segments", prefix=f"rank_{ranks.rank}_")
        self.store = CheckpointStore(
            folder / "checkpoints", keep_last=keep_last, segments=segments, read_only=ranks.rank > 0
        )
        self.stop_at = stop_at
        self.trainer = assemble_trainer(
            TrainerConfig(**{**SETTINGS, **settings}),
            env=self.env,
            evaluation_env=ToyEnv(world, 6, limit=7, seed=seed + 1),
            learner=wrap(self.learner),
            checkpoints=self.store,
            record=self._record,
            interval_seconds=interval_seconds if stop_at is None else 0.0,
            seed=seed_of(seed, ranks),
            ranks=ranks,
            mirror=getattr(self.env, "mirror", None),
            changed=changed,
            beside=beside,
        )

    def resume(self) -> "Loop":
        self.trainer.load_state_dict(self.store.load().state)
        return self

    def evaluations(self) -> dict[int, dict[str, float]]:
        """What the evaluations have found, by step."""
        return {
            int(record["step"]): {k: v for k, v in record.items() if k.startswith("eval/")}
            for record in self.records
            if "eval/success" in record
        }

    def _record(self, record: Mapping[str, float]) -> None:
        self.records.append(dict(record))
        if self.stop_at is not None and "seconds" in record and record["step"] >= self.stop_at:
            self.trainer.stop()


def _ramp(step: int) -> list[float]:
    """The weights of a curriculum: stored rewards are reweighted in every step."""
    return [1.0, 0.01 * step]


def future_of(loop: Loop) -> dict[str, Any]:
    """All that decides the future, with the rows of the replay instead of their files."""
    trainer = loop.trainer
    parts = {name: getattr(trainer, name).state_dict() for name in ("learner", "env", "collector")}
    batch = vars(trainer.replay.sample(200, progress=0.5))
    return copied({**parts, "held": len(trainer.replay), "next batch": batch})


def ends_as_if_uninterrupted(folder: Path, stops: list[int], **settings: Any) -> dict[str, Any]:
    """All that decides the future of a run that was stopped and resumed, each time with a seed that
    it must not need; asserts that it and what was evaluated are those of a run that was not."""
    settings = {"total_steps": 132, "evaluation_interval": 132, **settings}
    whole, evaluations = Loop(folder / "whole", **settings), dict[int, dict[str, float]]()
    whole.trainer.run()
    for stop in stops:
        first = stop == stops[0]
        loop = Loop(folder / "parts", seed=0 if first else stop, stop_at=stop, **settings)
        if not first:
            loop.resume()
        assert loop.trainer.run() is False
        assert loop.store.load().step == stop
        evaluations |= loop.evaluations()
    loop = Loop(folder / "parts", seed=99, **settings).resume()
    assert loop.trainer.run() is True
    evaluations |= loop.evaluations()
    assert {step: e["eval/success"] for step, e in evaluations.items()} == {
        step: e["eval/success"] for step, e in whole.evaluations().items()
    }
    state = future_of(loop)
    assert_same(state, future_of(whole))
    return state
