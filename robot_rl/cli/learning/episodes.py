"""A run of `robot-rl learn` as episodes of a data set: to keep, to clone, to begin others with.

Its log is read twice: the labels of people first, so that each step comes with the outcome that all
of them give it. What a label ends an episode at is its last step. An episode that an actor did not
bring to its end, or that lacks steps, is truncated where they stop, and goes on as another one.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from configs.compose import from_plain
from robot_rl.cli.learning.environment import robot_spec
from robot_rl.cli.learning.options import begun_with, experience_folder
from robot_rl.core.errors import ConfigError, StorageError
from robot_rl.core.meaning import meaning_of_groups
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.recorder import spec_of
from robot_rl.datasets.spec import DatasetSpec
from robot_rl.link.corrections import Correction
from robot_rl.link.records import Frame
from robot_rl.link.store import Begun, ExperienceStore
from robot_rl.link.transitions import Ended, Transition, TransitionAssembler
from robot_rl.rewards.env import RewardConfig
from robot_rl.training.runs.run_folder import RunFolder, RunState

Steps = list[tuple[Transition, Frame]]
"""Steps of an episode, each with the frame behind it."""


def learned_episodes(path: Path) -> tuple[DatasetSpec, Iterator[Episode]]:
    """Read the steps that a run of `robot-rl learn` has stored; one episode at a time is held.

    Returns:
        The content of its episodes, and these in the order in which they ended; those that were
        discarded too, without a valid step. No other process may go on with the run meanwhile.

    Raises:
        ConfigError: It has no steps, or does not say what its actions mean.
        StorageError: A process uses the run, or its log is damaged.
    """
    run, experience = RunFolder.open(path), experience_folder(path)
    if not any(experience.glob("*.log")):
        raise ConfigError(
            f"{path} has no steps of a robot: there is no log in {experience}; a robot on another "
            "computer sends them to its learner: name the run of that (role=learner)"
        )
    if run.status().state is RunState.RUNNING:
        raise StorageError(
            f"{path} goes on, and its steps are still being written; end robot-rl learn first"
        )
    # What the frames were paid for stands in them: a learned reward may be gone.
    config = replace(from_plain(run.config()), reward=RewardConfig())
    env, task = robot_spec(config, begun_with(run)), str(run.chosen()["task"])
    with ExitStack() as opened:
        opened.enter_context(RunFolder.open(path, write=True))
        store = opened.enter_context(closing(ExperienceStore(experience)))
        first = next((one for _, one in store.read(0) if isinstance(one, Frame)), None)
        if first is None:
            raise ConfigError(f"{path} holds no step yet; let the robot go on, or name another run")
        whole, seen = spec_of(env), first.obs
        groups = {name: width for name, width in whole.groups.items() if name in seen}
        images = {n: shape for n, shape in whole.images.items() if IMAGE_PREFIX + n in seen}
        spec = replace(
            whole, groups=groups, images=images, reward_names=(),
            meaning=meaning_of_groups(whole.meaning, [*groups]),
        )  # fmt: skip
        stacks = {IMAGE_PREFIX + name: env.groups[IMAGE_PREFIX + name].shape[0] for name in images}
        return spec, _episodes(opened.pop_all(), store, stacks, spec, (run.path.name, task))


def _episodes(
    opened: ExitStack, store: ExperienceStore, stacks: dict[str, int], spec: DatasetSpec,
    names: tuple[str, str],
) -> Iterator[Episode]:  # fmt: skip
    """Episodes of a store, which is closed behind the last."""
    run, task = names
    with opened:
        assembler = TransitionAssembler(stacks)
        for _, entry in store.read(0):
            if isinstance(entry, Correction):
                assembler.take(entry)
        robots: dict[str, str] = {}
        held: dict[str, Steps] = {}

        def let_go(session: str) -> Iterator[Episode]:
            if steps := held.pop(session, []):
                source = f"{run} {robots[session]} {session[:8]}/{steps[0][0].episode[1]}"
                yield _episode(steps, spec, task, source)

        for _, entry in store.read(0):
            if isinstance(entry, Correction):
                continue
            if isinstance(entry, Begun):
                robots[entry.session] = entry.robot
            for event in assembler.take(entry):
                session = event.episode[0]
                if isinstance(event, Ended):
                    yield from let_go(session)
                elif isinstance(event, Transition) and isinstance(entry, Frame):
                    before = held[session][-1][0] if session in held else None
                    if before is not None and before.index + 1 != event.index:
                        yield from let_go(session)
                    held.setdefault(session, []).append((event, entry))
        for session in list(held):
            yield from let_go(session)


def _episode(steps: Steps, spec: DatasetSpec, task: str, source: str) -> Episode:
    """An episode out of steps that follow each other, to the first that ends it."""
    ends = [k for k, (one, _) in enumerate(steps) if _ends(one)]
    steps = steps[: ends[0] + 1] if ends else steps
    taken, last = [one for one, _ in steps], steps[-1][1]
    seen = [*(one.frame.obs for one in taken), taken[-1].next_obs]
    final = np.arange(len(taken)) == len(taken) - 1
    terminated = np.array([one.outcome.terminated for one in taken])
    stamps = np.array([*(one.frame.stamp for one in taken), last.stamp])
    return Episode(
        obs={name: np.stack([obs[name] for obs in seen]) for name in spec.groups},
        images={name: np.stack([obs[IMAGE_PREFIX + name][-1] for obs in seen])
                for name in spec.images},
        action=np.stack([one.frame.action for one in taken if one.frame.action is not None]),
        reward=np.array([one.outcome.reward for one in taken], np.float32),
        terminated=terminated, truncated=final & ~terminated,
        success=np.array([one.outcome.success for one in taken]),
        valid=np.array([one.outcome.valid for one in taken]),
        intervened=np.array([one.frame.intervened for one in taken]),
        policy_version=np.array([one.frame.policy_version for one in taken], np.int64),
        # A clock that was set back must not let time go back.
        stamp_ns=np.maximum.accumulate((1e9 * stamps).round().astype(np.int64)),
        task=task, source=source,
    )  # fmt: skip


def _ends(step: Transition) -> bool:
    return step.outcome.terminated or step.outcome.truncated
