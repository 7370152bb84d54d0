"""The loop of a learner beside robots: takes their steps, learns, publishes weights, saves.

    store -> assembler -> rings -> minibatches (half demonstrations) -> updates -> weights

The robots never wait for it, nor it for them: it learns from what has come, up to
`training.updates_per_step` updates per received step. A checkpoint holds networks, optimisers,
normalisers, random streams, counters, and the position in the store's log up to which steps were
taken. A resumed loop fills its rings from the log up to there, so that its next update is the same
bit for bit, and then takes what has come since.
"""

import logging
import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from robot_rl.buffers.minibatches import Minibatches
from robot_rl.core.env import EnvSpec, EnvStep, Obs
from robot_rl.core.episodic import first_action
from robot_rl.core.errors import CheckpointError, NonFiniteError
from robot_rl.core.learner import Learner, Phase
from robot_rl.core.transition import Batch
from robot_rl.link.server import ANSWER_SECONDS, ControlError
from robot_rl.link.store import ExperienceStore
from robot_rl.link.transitions import TransitionAssembler
from robot_rl.training.config import OnlineConfig, TrainerConfig
from robot_rl.training.online_replay import OnlineReplay
from robot_rl.training.storage.checkpoint import CheckpointStore
from robot_rl.training.trainer import CheckpointSchedule, Clock, FiniteWatch, what_ends_a_run

if TYPE_CHECKING:
    from robot_rl.training.prior_episodes import ObservationAugmenter  # pyarrow is an extra

_logger = logging.getLogger(__name__)
_REST_SECONDS = 0.1
_MOST_TAKEN = 2000
"""Entries of the log that are taken before the next updates."""
_SHOWN_EPISODES = 20
_EVALUATED = ("return", "success", "success_low", "success_high", "episodes")
"""Numbers that a robot tells of an evaluation."""
_LARGEST = 1e30
"""Size that they may have."""
_VALUE_SECONDS = 0.5
CHECK = "check/"
"""Names of the pair that an actor proves its policy with: observation groups, and the action."""
POLICY = "policy/"
"""Names of the acting policy's tensors."""


@dataclass
class _Wish:
    do: str
    arguments: Mapping[str, Any]
    until: float
    answer: Future[str]


class OnlineTrainer:
    """Runs the loop over parts that were made elsewhere."""

    def __init__(
        self, config: TrainerConfig, online: OnlineConfig, *, spec: EnvSpec, learner: Learner,
        store: ExperienceStore, checkpoints: CheckpointStore,
        publish: Callable[[Mapping[str, Any]], int],
        record: Callable[[Mapping[str, float]], None], interval_seconds: float, seed: int,
        augment: "ObservationAugmenter | None" = None,
    ) -> None:  # fmt: skip
        """Join the parts.

        Args:
            spec: Of the robots' environment.
            publish: Makes tensors (numpy arrays by name) the next version; returns its number.
            record: Takes metrics every interval.
            interval_seconds: Wall time between two records [s].
            augment: Changes stored episodes of `training.prior` as they are read.
        """
        self.config, self.learner, self.store = config, learner, store
        self.replay = OnlineReplay(config, spec, learner, seed=seed, augment=augment)
        if self.replay.demonstrations is not None:
            self.replay.demonstrations.warm_start_normalizers(learner)
        self.assembler = TransitionAssembler(self.replay.steps.stacks)
        self.position = 0
        """Entries of the log that were taken."""
        self.steps = 0
        """Steps of all robots that were taken."""
        self.updates = 0
        """Updates done; a rollback does not take them back."""
        self.version = 0
        """Newest published version of the weights."""
        self.paused = False
        """Steps are taken, and nothing is learned."""
        self.seconds = 0.0
        """Wall time, all sessions together [s]."""
        self._online, self._checkpoints = online, checkpoints
        self._publish, self._record = publish, record
        self._interval_seconds = interval_seconds
        size, own = learner.samples_per_update, self.replay
        self._alone = Minibatches(own.steps, size)
        self._mixed: Minibatches | None = None
        if config.prior.share > 0:
            self._mixed = Minibatches(own.steps, size, prior=own.prior, share=config.prior.share)
        self._control_dt, self._judges = spec.control_dt, spec.judges_success
        self._good_obs: Obs | None = None  # of the newest valid step
        groups = {name: spec.groups[name] for name in learner.actor_groups}
        self._checked_before: Obs = {  # what the policy is asked about before there is one
            name: torch.zeros(1, *group.shape, dtype=group.dtype, device=spec.device)
            for name, group in groups.items()
        }
        self._metrics: dict[str, Tensor] = {}
        self._evaluated: dict[str, float] = {}
        self._newest: dict[str, EnvStep] = {}  # of each session, since it was valued
        self._values: dict[str, float] = {}
        self._valued_at = -1e9
        self._watch, self._clock = FiniteWatch(), Clock()
        self._saves = CheckpointSchedule(config.checkpoint_interval, config.checkpoint_seconds)
        self._rate, self._counted = 0.0, (0, time.monotonic())
        self._counted_from = 0, 0  # steps and updates from which on updates are owed
        self._published_at, self._published_updates = -1e9, -1
        self._rolled_back = 0  # version of the weights since the last rollback
        self._wishes: queue.SimpleQueue[_Wish] = queue.SimpleQueue()
        self._stop = False

    def run(self, over: Callable[[], bool] = lambda: False) -> None:
        """Learn until it is finished, until `stop`, or until `over`; the last state is saved.

        Raises:
            NonFiniteError: A value was NaN or infinite; the last good checkpoint is intact.
        """
        self.begin()
        while not (self._stop or self.finished or over()):
            took, learned = self.take(), self.learn()
            self._fulfil_wishes()
            self._value_newest()
            if time.monotonic() > self._published_at + self._online.publish_seconds:
                self.publish()
            if self._clock.elapsed >= self._interval_seconds:
                self.log()
            if self._saves.is_due(self.steps):
                self.save()
            if not took and not learned:
                self.store.wait(self.position, _REST_SECONDS)
        self.log()
        self.save()

    def begin(self) -> None:
        """Begin to learn from what robots send; `run` does it by itself."""
        self.learner.begin_phase(Phase.online)
        self._clock.start(self.steps)

    def stop(self) -> None:
        """Ask `run` to save and return; may be called from a signal."""
        self._stop = True

    def take(self, stop: int | None = None, *, observe: bool = True) -> bool:
        """Take entries of the log, some at once; returns whether there were any.

        Args:
            stop: Position to stop at, without other bound.
            observe: Let the learner see them; false for those that it saw in an earlier session.
        """
        begin = self.position
        until = begin + _MOST_TAKEN if stop is None else stop
        with self._clock.spent_on("collect"):
            for position, entry in self.store.read(begin, min(until, self.store.position)):
                for event in self.assembler.take(entry):
                    for step in self.replay.take(event):
                        self._see(step, observe)
                        if bool(step.valid):
                            self._newest[entry.session] = step
                self.position = position + 1
        return self.position > begin

    def _see(self, step: EnvStep, observe: bool) -> None:
        self.steps += 1
        if bool(step.valid):
            self._good_obs = step.obs
        elif self._good_obs is None:
            return
        else:  # what a robot measured may be NaN: it ends returns, and is in no normaliser
            step = replace(step, obs=self._good_obs, next_obs=self._good_obs)
        if observe:
            self.learner.observe(step)

    @property
    def finished(self) -> bool:
        """All steps of the run have come, and were learned from."""
        return self.steps >= self.config.total_steps and self.owed < 1

    @property
    def owed(self) -> int:
        """Updates that the received steps allow and that were not done yet.

        Steps beyond those of the run are kept, and allow none: robots that go on would keep a
        learner that is behind from its end.
        """
        return self._owed_at(self.config.updates_per_step)

    def _owed_at(self, updates_per_step: int) -> int:
        steps, updates = self._counted_from
        return (self._learned_from - steps) * updates_per_step - (self.updates - updates)

    @property
    def _learned_from(self) -> int:
        """Steps received that updates are owed for, or were."""
        return max(0, min(self.steps, self.config.total_steps) - self._online.start_steps)

    def _count_anew(self, before: int) -> None:
        """Owe by the present updates per step from here on, and for steps not learned from yet."""
        if before == self.config.updates_per_step:
            return
        waiting = max(0, self._owed_at(before)) // before if before else 0
        self._counted_from = self._learned_from - waiting, self.updates

    def learn(self) -> bool:
        """Updates for a step, if they are owed and not paused; returns whether there were any."""
        count = min(self.owed, self.config.updates_per_step)
        if self.paused or count < 1 or not len(self.replay.steps):
            return False
        minibatches = self._alone
        few = 1 if self.replay.demonstrations is not None else self.learner.samples_per_update
        if self._mixed is not None and len(self.replay.prior) >= few:
            minibatches = self._mixed
        with self._clock.spent_on("learn"):
            for batch in minibatches.draw(count, 1.0, look=self._watch.see_batch):
                metrics, _ = self.learner.update(batch)
                self._metrics = {f"train/{name}": value for name, value in metrics.items()}
                self._watch.see_metrics(self._metrics)
                self.updates += 1
        return True

    def learn_offline(self) -> None:
        """The `training.offline.updates` of a new run: from the demonstrations alone, at once.

        The updates of the steps that follow are counted from here.
        """
        count = self.config.offline.updates
        if not count or self.steps or self.updates:
            return
        self.learner.begin_phase(Phase.offline)
        minibatches = Minibatches(self.replay.prior, self.learner.samples_per_update)
        for _ in range(count):
            for batch in minibatches.draw(1, 0.0, look=self._watch.see_batch):
                metrics, _ = self.learner.update(batch)
                self._watch.see_metrics({f"train/{n}": value for n, value in metrics.items()})

    def publish(self) -> None:
        """Make the present weights the next version, if they are others than the last one's.

        A pair of an observation and the action at it goes along: an actor that computes another
        action has another policy, and must not move.
        """
        self._published_at = time.monotonic()
        if self.updates == self._published_updates:
            return
        policy = self.learner.policy()
        seen = self._good_obs or self._checked_before
        obs = {name: seen[name] for name in self._checked_before}
        with torch.no_grad():  # a plan of before is not what these weights say
            robot = torch.ones(1, dtype=torch.bool)
            action = first_action(policy, lambda: policy(obs), robot)
        arrays = {POLICY + name: one for name, one in policy.state_dict().items()}
        arrays |= {f"{CHECK}obs/{name}": one for name, one in obs.items()}
        arrays[CHECK + "action"] = action
        self.version = self._publish({n: t.detach().cpu().numpy() for n, t in arrays.items()})
        self._published_updates = self.updates

    def ask(self, do: str, arguments: Mapping[str, Any]) -> Future[str]:
        """Fulfil a wish of a person between two steps of the loop; from any thread, never waits.

        Returns:
            What came of it, as soon as it is known: a remark, or a `ControlError` that says why it
            cannot be done. A wish that nobody looked at for `ANSWER_SECONDS` is cancelled.
        """
        wish = _Wish(do, arguments, time.monotonic() + ANSWER_SECONDS, Future())
        self._wishes.put(wish)
        return wish.answer

    def _value_newest(self) -> None:
        """Value what each robot saw last, for its console."""
        now = time.monotonic()
        if now < self._valued_at + _VALUE_SECONDS or self.learner.chunk_length:
            return
        self._valued_at = now
        newest, self._newest = self._newest, {}
        for session, step in newest.items():
            batch = Batch(
                obs=step.next_obs, action=step.action, reward=step.reward,
                discount=torch.zeros_like(step.reward), next_obs=step.next_obs,
                weight=torch.ones_like(step.reward),
            )  # fmt: skip
            value = self.learner.inspect(batch).get("q_policy")
            if value is not None:
                self._values[session] = float(value)

    def metrics(self, session: str = "") -> dict[str, float]:
        """Numbers for consoles: cheap, from any thread.

        Args:
            session: Of the robot whose console it is: `q` is the value of what it saw last.
        """
        learned_from = max(1, self.steps - self._online.start_steps)
        value = self._values.get(session)
        return {
            **({} if value is None else {"q": value}),
            "updates_per_second": self._rate, "utd": self.updates / learned_from,
            "utd_wanted": self.config.updates_per_step, "paused": self.paused,
            "updates": self.updates, "steps": self.steps, "version": self.version,
            "intervened_steps": self.replay.interventions,
        }  # fmt: skip

    def log(self) -> None:
        """Record the interval.

        Raises:
            NonFiniteError: A value was not finite.
        """
        self._check(weights=False)
        values = torch.stack([*self._metrics.values()]).tolist() if self._metrics else []
        self.seconds += self._clock.session_part()
        self._record({
            "step": self.steps, "seconds": self.seconds, **self._rollout(),
            **dict(zip(self._metrics, values, strict=True)),
            "train/updates": self.updates, "train/version": self.version,
            "train/updates_per_step": self.updates / max(1, self.steps - self._online.start_steps),
            "train/paused": float(self.paused), **self._evaluated, **self._clock.pop(self.steps),
        })  # fmt: skip
        self._evaluated = {}
        now = time.monotonic()
        self._rate = (self.updates - self._counted[0]) / max(1e-9, now - self._counted[1])
        self._counted = self.updates, now

    def _rollout(self) -> dict[str, float]:
        """Means over the last episodes, as they are judged now."""
        found = list(self.assembler.summaries(_SHOWN_EPISODES))
        told = {
            "rollout/invalid_steps": float(self.assembler.not_finite + self.assembler.unfinished),
            "rollout/interventions": float(self.replay.interventions),
        }
        if not found:
            return told
        count, steps = len(found), sum(one.steps for one in found)
        return {
            **told,
            "rollout/return": sum(one.total for one in found) / count,
            "rollout/success": sum(one.success for one in found) / count,
            "rollout/unaided_success": sum(o.success and not o.aided for o in found) / count,
            "rollout/terminated": sum(one.terminated for one in found) / count,
            "rollout/episode_seconds": steps * self._control_dt / count,
            "rollout/intervention_rate": sum(one.intervened for one in found) / steps,
        }

    def _check(self, *, weights: bool) -> None:
        learner = self.learner if weights else None
        told = what_ends_a_run(
            self._watch, learner, f"by step {self.steps}", self._checkpoints,
            "with a smaller learning rate",
        )  # fmt: skip
        if told:
            raise NonFiniteError(told)

    def save(self) -> None:
        """Write a checkpoint.

        Raises:
            NonFiniteError: A weight is not finite; nothing was written.
        """
        self._check(weights=True)
        self._checkpoints.save(self.steps, self.state_dict(), score=self._score())
        self._saves.saved(self.steps)

    def _score(self) -> float | None:
        """Of the last episodes, what the best checkpoint is chosen by; None before there are many.

        A success that a person helped with is none of the policy, and what later weights did before
        a rollback is nothing of those that were taken back.
        """
        found = list(self.assembler.summaries(_SHOWN_EPISODES))
        if sum(one.version >= self._rolled_back for one in found) < _SHOWN_EPISODES:
            return None
        name = "rollout/unaided_success" if self._judges else "rollout/return"
        return self._rollout()[name]

    def state_dict(self) -> dict[str, Any]:
        """All that the next update depends on; rows by their position in the log."""
        self.seconds += self._clock.session_part()
        return {
            "learner": self.learner.state_dict(),
            "policy": self.learner.policy().state_dict(),  # for those who only play it
            "replay": self.replay.state_dict(),
            "store": self.store.name,
            "position": self.position, "steps": self.steps, "updates": self.updates,
            "paused": self.paused, "seconds": self.seconds,
            "updates_per_step": self.config.updates_per_step,
            "counted_from": list(self._counted_from), "rolled_back": self._rolled_back,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`: fill the rings from the log, then restore all else.

        Raises:
            CheckpointError: The log is not the one that the checkpoint was made with.
        """
        if state["store"] != self.store.name or self.store.position < state["position"]:
            raise CheckpointError(
                f"the checkpoint was made with {state['position']} entries of the store "
                f"{state['store'][:8]}; here is the store {self.store.name[:8]} with "
                f"{self.store.position}: put back the log of the run"
            )
        self.take(int(state["position"]), observe=False)
        if self.steps != state["steps"]:
            raise CheckpointError(
                f"the log gives {self.steps} steps, and the checkpoint had {state['steps']}"
            )
        try:
            self.learner.load_state_dict(state["learner"])
        except (RuntimeError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"the learner of the checkpoint does not fit ({str(error).splitlines()[-1].strip()}"
                "); go on with the options that the run was begun with, such as driver="
            ) from error
        self.replay.load_state_dict(state["replay"])
        self.updates, self.paused = int(state["updates"]), bool(state["paused"])
        self._counted_from = tuple(state.get("counted_from", (0, 0)))
        self._rolled_back = int(state.get("rolled_back", 0))
        self._count_anew(int(state.get("updates_per_step", self.config.updates_per_step)))
        self._counted = self.updates, time.monotonic()
        self.seconds = float(state["seconds"])
        self._saves.saved(self.steps)

    def _fulfil_wishes(self) -> None:
        while not self._wishes.empty():
            wish = self._wishes.get()
            if time.monotonic() > wish.until:
                wish.answer.cancel()
            if not wish.answer.set_running_or_notify_cancel():
                continue
            try:
                wish.answer.set_result(self._fulfil(wish.do, wish.arguments))
            except (ControlError, CheckpointError) as error:
                wish.answer.set_exception(ControlError(str(error)))
            except BaseException as error:  # ends the learner, and whoever waits must not
                wish.answer.set_exception(ControlError(str(error)))
                raise

    def _fulfil(self, do: str, arguments: Mapping[str, Any]) -> str:
        if do in ("pause_learning", "resume_learning"):
            self.paused = do == "pause_learning"
            return "learning is paused" if self.paused else "learning goes on"
        if do == "rollback":
            return self._roll_back(str(arguments.get("checkpoint", "last")))
        if do == "evaluated":
            found = {name: arguments[name] for name in _EVALUATED if name in arguments}
            for name, value in found.items():
                if not isinstance(value, int | float) or not abs(value) <= _LARGEST:
                    raise ControlError(f"evaluated: {name} is {value!r}; expected a number")
            self._evaluated = {f"eval/{name}": float(value) for name, value in found.items()}
            return "noted"
        raise ControlError(
            f"'{do}' is unknown to the learner; known: pause_learning, resume_learning, rollback, "
            "evaluated"
        )

    def _roll_back(self, which: str) -> str:
        """Take networks and optimisers of a checkpoint back; what was experienced stays."""
        kept = self._checkpoints
        steps = {str(step): kept.path_of(step) for step in kept.steps()}
        named = {"last": kept.latest(), "best": kept.best(), **steps}
        if (path := named.get(which)) is None:
            known = ", ".join(name for name, one in named.items() if one) or "none yet"
            raise ControlError(f"there is no checkpoint '{which}'; expected one of: {known}")
        checkpoint = kept.load(path)
        self.learner.load_state_dict(checkpoint.state["learner"])
        self._watch, self._metrics = FiniteWatch(), {}
        self._published_updates = -1
        self.publish()
        self._rolled_back = self.version
        self.save()  # a restart goes on from here
        return f"the weights are those of step {checkpoint.step}, as version {self.version}"
