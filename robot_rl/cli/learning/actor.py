"""The actor: moves the robot by the newest policy, and puts every step into the spool.

It never waits for the learner: without one it acts with the newest weights that it has. It does not
act without weights, with weights that act otherwise than at the learner, nor where the spool has no
room for an episode: then no step is taken, the robot's loop holds it, and the prompt says why.
"""

import contextlib
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.schema import RunConfig
from hardware.control.realtime import (
    POLICY_PRIORITY,
    freeze_existing_objects,
    request_priority,
)
from hardware.learning.hardware_env import Phase
from hardware.teleop.actor_socket import ActorSocket
from robot_rl.buffers.frames import is_image
from robot_rl.cli.learning.environment import RobotEnv, make_robot_env, robot_meaning
from robot_rl.cli.learning.operator import Console, Link, OperatorCommands, Records
from robot_rl.cli.learning.options import LearnOptions, robot_folder
from robot_rl.cli.learning.parts import frame_spec, make_acting_learner, take_weights
from robot_rl.cli.learning.timing import PeriodTimes
from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.errors import LimitError, NonFiniteError, SpecMismatchError, StorageError
from robot_rl.core.learner import Learner
from robot_rl.core.seeding import derive_seed
from robot_rl.link.client import LinkClient
from robot_rl.link.records import Frame, RecordError
from robot_rl.link.spool import Spool
from robot_rl.link.weights import WeightStore
from robot_rl.training.config import OnlineConfig
from robot_rl.training.reporting.statistics import wilson_interval
from robot_rl.training.runs.run_folder import RunFolder

_logger = logging.getLogger(__name__)
_REST_SECONDS = 0.02
_TELL_SECONDS = 0.1
_LINE_SECONDS = 5.0
_SWITCH_SECONDS = 5e-4
"""Longest time that the link's thread keeps the interpreter from the control loop [s]."""
_LEAST_ROOM = 100_000
"""Bytes that must be free before the first episode."""
_DISK_REST_SECONDS = 5.0
"""Pause of the robot after a step that the disk refused."""
_EPISODES = 20
"""Newest episodes that rates are told of."""
_EMPTY_SECONDS = 3.0
"""Longest wait for an empty spool at the end; what is left is sent by the next start."""


class _EndedEpisode(NamedTuple):
    episode: int
    total: float
    success: bool
    """By the robot's own rule."""
    steps: int
    helped: int
    """Steps in which a person led."""
    version: int
    """Of the weights at its end."""
    void: bool
    """None of its steps is learned from."""


class Actor:
    """Acts, records, and obeys the person at the robot, one control period at a time."""

    def __init__(
        self, env: RobotEnv, learner: Learner, spool: Records, link: Link, *,
        config: OnlineConfig, console: Console,
    ) -> None:  # fmt: skip
        """Join the parts; the robot is first asked for by `start`.

        Args:
            env: The robot.
            learner: Acts; never learns.
            spool: Takes every step.
            link: Has the newest weights, and carries wishes; started by its owner.
            console: Where persons' commands come from.
        """
        self._env, self._learner, self._spool, self._link = env, learner, spool, link
        self._config, self._console = config, console
        self.commands = OperatorCommands(console, self, spool, link)
        """Fulfils what persons ask for."""
        self._groups = (*learner.actor_groups, *learner.critic_groups)
        self._cameras = [name for name in self._groups if is_image(env.spec.groups[name])]
        self._obs: Obs = {}
        self.episode = -1
        """Number of the present episode, or of the last one between two."""
        self._index, self._total, self._helped, self._void = 0, 0.0, 0, True
        self._version = self._refused = 0
        self._trouble = "no weights have come yet"
        self._room, self._before = _LEAST_ROOM, 0
        self._unkept, self._unkept_at = "", -math.inf
        self._segment, self._reports = "", 0
        self._evaluating = self._wanted = 0
        self._evaluated: list[_EndedEpisode] = []
        self._ended: deque[_EndedEpisode] = deque(maxlen=_EPISODES)
        self._labels: dict[int, tuple[bool | None, bool]] = {}  # a success, and discarded
        self._intervened = False
        self._action = self._asked = np.zeros(0, np.float32)
        self._steps = 0
        self._told_at = self._said_at = -1e9
        self._swapped_at = time.monotonic()
        self._times = PeriodTimes(env.spec.control_dt)

    def start(self) -> None:
        """Begin the first reset, which the first ticks lead."""
        self._env.start_reset("start")

    def tick(self) -> None:
        """Do all that is due in a control period: one step, or a short rest where none may be."""
        self.commands.poll()
        if not self._episode_runs or not self._config.swap_between_episodes:
            self._swap()
        if self._env.phase is not Phase.running:
            self._obs = _copied(self._env.step(self._no_action()).obs)
        elif not self._episode_runs and self.waits_for:
            time.sleep(_REST_SECONDS)
        else:
            self._act()
        self._tell()

    @property
    def waits_for(self) -> str:
        """Reason why no episode may begin; empty where one may."""
        if self._version == 0:
            return self._trouble
        if time.monotonic() - self._unkept_at < _DISK_REST_SECONDS:
            return self._unkept
        if self._spool.num_bytes + self._room > self._spool.quota_bytes:
            if not self._spool.unacknowledged and not self._spool.full:
                return (
                    f"an episode takes up to {self._room / 1e6:.1f} MB, which the whole spool has "
                    f"no room for: raise online.quota_mb={self._spool.quota_bytes / 1e6:g}"
                )
            return self._spool.full or (
                f"the spool has no room for an episode of {self._room / 1e6:.1f} MB: the learner "
                "must store what waits first"
            )
        return ""

    @property
    def running(self) -> bool:
        """An episode is under way."""
        return self._episode_runs

    def end_episode(self, reason: str) -> None:
        """Truncate the episode at the end of the present period."""
        self._env.end_episode(reason)

    def confirm(self) -> None:
        """Say that what the prompt asks for is done."""
        self._env.confirm()

    def mark(self, segment: str) -> None:
        """Steps belong to this segment until the policy acts again."""
        self._segment = segment

    def evaluate(self, episodes: int) -> None:
        """Act without exploration in so many episodes from the next one on; 0 ends it at once."""
        self._wanted = episodes
        if not episodes:
            self._evaluating, self._evaluated = 0, []

    def judge(self, episode: int, success: bool | None, *, discarded: bool = False) -> None:
        """A person calls an episode a success or not, or discards it; None takes a label back.

        A label of an evaluation that has ended corrects what the learner was told of it.
        """
        self._labels.pop(episode, None)
        if success is not None or discarded:
            self._labels[episode] = success, discarded
        evaluated = {one.episode for one in self._evaluated}
        for old in [one for one in self._labels if one <= self.episode - _EPISODES]:
            if old not in evaluated:
                del self._labels[old]
        if episode in evaluated and not self._evaluating:
            self._report_evaluation()

    def _succeeded(self, ended: _EndedEpisode) -> bool:
        label, _ = self._labels.get(ended.episode, (None, False))
        return ended.success if label is None else label

    def _counted(self, ended: Sequence[_EndedEpisode]) -> list[_EndedEpisode]:
        """Those that rates are of: neither void nor discarded."""
        no_label = None, False
        return [
            one for one in ended if not (one.void or self._labels.get(one.episode, no_label)[1])
        ]

    @property
    def _episode_runs(self) -> bool:
        return self._index > 0

    def _swap(self) -> None:
        """Take the newest weights, unless they were refused before."""
        newest = self._link.newest
        if newest is None or newest.version in (self._version, self._refused):
            return
        try:
            take_weights(self._learner, newest)
        except SpecMismatchError as error:
            self._refused, self._trouble = newest.version, str(error)
            _logger.warning("%s", error)
        else:
            self._version, self._trouble = newest.version, ""
            self._swapped_at = time.monotonic()

    def _act(self) -> None:
        """A step of an episode."""
        if not self._episode_runs:
            self.episode += 1
            if self._wanted:
                self._evaluating, self._wanted, self._evaluated = self._wanted, 0, []
            self._total, self._helped, self._void = 0.0, 0, True
            self._before = self._spool.num_bytes
            self._learner.begin(torch.ones(1, dtype=torch.bool))
        explore = not self._evaluating
        with torch.no_grad():
            action = self._learner.act(self._obs, explore=explore)
        stamp, taken = self._stamps()
        seen = self._seen(self._obs)
        began = time.monotonic()
        step = self._env.step(action)
        age = step.metrics.get("state_age")
        self._times.add(began, time.monotonic(), None if age is None else float(age))
        handed_back = self._intervened and self._episode_runs and not bool(step.intervened)
        if handed_back and self._config.end_with_intervention and not bool(step.ended):
            self._env.end_episode("the person handed back")
        self._intervened = bool(step.intervened)
        self.commands.times.add(
            self.episode, self._index, stamp, time.time() - time.monotonic() + self._env.stamp,
            succeeded=self._env.sees_success, intervened=self._intervened,
        )  # fmt: skip
        self._segment = self._segment if self._intervened else ""
        self._action = step.action[0].numpy().astype(np.float32)
        self._asked = action[0].cpu().numpy()
        self._record(Frame(
            episode=self.episode, index=self._index, obs=seen, action=self._action,
            reward=float(step.reward), terminated=bool(step.terminated),
            truncated=bool(step.truncated), valid=bool(step.valid), intervened=self._intervened,
            success=bool(step.success), policy_version=self._version, stamp=stamp,
            picture_stamps=taken,
            segment=self._segment or ("human" if self._intervened else "policy"),
        ))  # fmt: skip
        self._total += float(step.reward) if bool(step.valid) else 0.0
        self._helped += self._intervened
        self._void = self._void and not bool(step.valid)
        self._index += 1
        self._steps += 1
        if bool(step.ended):
            self._finish(step)
        self._obs = _copied(step.obs)

    def _finish(self, step: EnvStep) -> None:
        """Record the last frame of the episode, which is only seen."""
        stamp, taken = self._stamps()
        self._record(Frame(
            episode=self.episode, index=self._index, obs=self._seen(step.next_obs),
            policy_version=self._version, stamp=stamp, picture_stamps=taken,
        ))  # fmt: skip
        ended = _EndedEpisode(
            self.episode, self._total, bool(step.success), self._index, self._helped,
            self._version, self._void,
        )  # fmt: skip
        self._ended.append(ended)
        # Twice the largest episode so far, and what a file of the spool keeps beside it.
        self._room = max(self._room, 2 * (self._spool.num_bytes - self._before))
        self._index = 0
        self._times.pause()
        if self._evaluating:
            self._evaluated.append(ended)
            self._evaluating -= 1
            if not self._evaluating:
                self._report_evaluation()

    def _stamps(self) -> tuple[float, dict[str, float]]:
        """Times of the newest observation and of its pictures [unix s]."""
        since = time.time() - time.monotonic()
        taken = {name: since + at for name, at in self._env.picture_stamps.items()}
        return since + self._env.stamp, taken

    def _seen(self, obs: Obs) -> dict[str, NDArray[Any]]:
        """Vectors that are read, and the newest picture of each camera."""
        return {
            name: _array(obs[name][:, -1] if name in self._cameras else obs[name])
            for name in self._groups
        }

    def _record(self, frame: Frame) -> None:
        """Put a frame into the spool; where it cannot be kept the episode ends."""
        try:
            self._spool.append(frame)
        except (StorageError, RecordError) as error:
            _logger.error("a step of episode %d could not be kept: %s", self.episode, error)
            self._unkept, self._unkept_at = str(error), time.monotonic()
            if frame.action is not None and not (frame.terminated or frame.truncated):
                self._env.end_episode("a step could not be kept")

    def _report_evaluation(self) -> None:
        """Tell the learner what the evaluated episodes gave; with help none is a success."""
        if not (evaluated := self._counted(self._evaluated)):
            return
        count = len(evaluated)
        wins = sum(self._succeeded(one) and not one.helped for one in evaluated)
        low, high = wilson_interval(wins, count)
        self._reports += 1  # every wish is fulfilled once
        self._link.ask(f"evaluation {self._spool.session} {self._reports}", "evaluated", {
            "episodes": count, "success": wins / count, "success_low": low, "success_high": high,
            "return": sum(one.total for one in evaluated) / count,
            "version": evaluated[-1].version,
        }, lasting=True)  # fmt: skip

    def _no_action(self) -> Tensor:
        return torch.zeros(1, self._env.spec.action_size)

    def _tell(self) -> None:
        now = time.monotonic()
        if now < self._told_at + _TELL_SECONDS:
            return
        self._told_at = now
        try:
            self._env.check()
        except (NonFiniteError, LimitError) as error:  # these steps are invalid already
            _logger.warning("%s", error)
        snapshot = self.snapshot()
        self._console.tell(snapshot)
        if now > self._said_at + _LINE_SECONDS:
            self._said_at = now
            _say(snapshot)

    def timing(self) -> str:
        """A line about the control periods of all episodes."""
        return self._times.summary()

    def state(self) -> dict[str, Any]:
        """Numbers for the learner; from any thread."""
        return {"episode": self.episode, "steps": self._steps, "version": self._version}

    def snapshot(self) -> dict[str, Any]:
        """State for consoles; what is not known is absent."""
        runs = self._env.phase is Phase.running
        waits = self.waits_for if runs and not self._episode_runs else ""
        phase = self._env.phase.value
        if waits:
            phase = "waiting"
        elif runs and not self._episode_runs:
            phase = Phase.reset.value  # over, but the next episode has no number before its step
        elif runs and self._evaluating:
            phase = "evaluating"
        ended = self._counted(list(self._ended))
        steps = sum(one.steps for one in ended)
        wins = sum(map(self._succeeded, ended))
        rates = {
            "success_rate": wins / len(ended),
            "success_interval": wilson_interval(wins, len(ended)),
            "return": sum(one.total for one in ended) / len(ended),
            "intervention_rate": sum(one.helped for one in ended) / max(1, steps),
        } if ended else {}  # fmt: skip
        learner = dict(self._link.learner)
        seen = {"success_probability": self._env.probability, "q": learner.pop("q", None)}
        return {
            "session": self._spool.session, "episode": self.episode, "step": self._index,
            "time": self._index * self._env.spec.control_dt, "phase": phase,
            "prompt": waits or self._env.prompt or self._env.doubt, "policy_version": self._version,
            "weights_age": time.monotonic() - self._swapped_at,
            "spool": self._spool.num_bytes, "unacked": self._spool.unacknowledged,
            "robot_minutes": self._steps * self._env.spec.control_dt / 60,
            "missed": self._times.missed,
            "episodes": self.episode + 1, "learner": learner,
            "link": "" if self._link.connected else self._link.trouble,
            "action": [round(float(one), 4) for one in self._action],
            "asked": [round(float(one), 4) for one in self._asked],
            "action_names": self._env.action_names,
            "who": "human" if self._intervened else "policy", **rates,
            **{name: value for name, value in seen.items() if value is not None},
        }  # fmt: skip


def run_actor(
    run: RunFolder, config: RunConfig, options: LearnOptions, over: Callable[[], bool]
) -> None:
    """Act until `over`.

    Args:
        run: Folder of the run; the robot's part of it is written.
        config: The run.
        options: Robot, learner's address, secrets.
        over: True when it is time to end; asked once per control period.

    Raises:
        RobotRLError: The robot, the spool or the options are wrong.
    """
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    sys.setswitchinterval(_SWITCH_SECONDS)
    folder = robot_folder(run.path, options.name)
    spool = Spool(folder / "spool", quota_bytes=int(config.online.quota_mb * 1e6))
    with contextlib.closing(spool):
        seed = derive_seed(config.seed, spool.session) >> 32
        env = make_robot_env(config, options, seed=seed)
        with contextlib.closing(env):
            learner = make_acting_learner(config, env.spec, seed)
            actors: list[Actor] = []
            link = LinkClient(
                spool, WeightStore(folder / "weights"), address=options.address,
                robot=options.name,
                spec=frame_spec(env.spec, learner, robot_meaning(config, options)),
                security=options.security(),
                state=lambda: actors[0].state() if actors else {},
            )  # fmt: skip
            with ActorSocket(options.channels) as console:
                actor = Actor(env, learner, spool, link, config=config.online, console=console)
                actors.append(actor)
                if options.driver != "sim":  # a learner may use every core
                    # After building, which would take a core from the loop; before the link's
                    # thread, which holds the interpreter now and then.
                    request_priority(POLICY_PRIORITY)
                    freeze_existing_objects()
                link.start()
                try:
                    actor.start()
                    while not over():
                        actor.tick()
                finally:
                    print(f"robot: {actor.timing()}", flush=True)
                    link.stop(empty_seconds=_EMPTY_SECONDS)


def _say(snapshot: Mapping[str, Any]) -> None:
    """A line about the robot."""
    parts = [f"robot: episode {snapshot['episode']}, {snapshot['phase']}"]
    if "success_rate" in snapshot:
        parts.append(f"success {100 * snapshot['success_rate']:.0f}%")
    parts.append(f"policy {snapshot['policy_version']}, {snapshot['unacked']} steps to send")
    parts += [text for text in (snapshot["prompt"], snapshot["link"]) if text]
    print("; ".join(parts), flush=True)


def _array(group: Tensor) -> NDArray[Any]:
    return group[0].cpu().numpy().copy()


def _copied(obs: Obs) -> Obs:
    return {name: group.clone() for name, group in obs.items()}
