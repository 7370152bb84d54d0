"""Parts of a run that learns from demonstrations alone: no envs to learn in, no replay."""

import operator
from pathlib import Path
from typing import TYPE_CHECKING

from configs.schema import COMPONENTS, RunConfig, component_of
from robot_rl.cli.components import make_learner
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.learners.cloning import Cloning
from robot_rl.training.config import TrainerConfig
from robot_rl.training.ranks import Ranks

if TYPE_CHECKING:
    from robot_rl.training.demonstrations import Demonstrations

_NEEDS_ENVS = (
    "snapshots.data", "prior.run", "offline.updates", "start.run", "symmetry", "replay.priority",
)  # fmt: skip
"""Fields of `training` that would do nothing where nothing is collected."""


def check_cloning(config: RunConfig, ranks: Ranks) -> None:
    """Refuse settings that would do nothing here, before anything is made."""
    if not config.training.demonstrations.data:
        raise ConfigError(
            "this learner learns from demonstrations, and none were named; expected "
            'training.demonstrations.data=<folder of a data set> (see "Prior data")'
        )
    training, unset = config.training, TrainerConfig()
    for name in _NEEDS_ENVS:
        value, usual = (operator.attrgetter(name)(one) for one in (training, unset))
        if value != usual:
            raise ConfigError(
                f"training.{name}={getattr(value, 'value', value)} is for learners that step "
                "envs, and this one learns from demonstrations alone; leave it out"
            )
    if ranks.count > 1:
        raise ConfigError(
            f"demonstrations are learned from in one process, and torchrun started {ranks.count}; "
            "leave torchrun out: robot-rl train ..."
        )


def cloning_parts(
    config: RunConfig, env: BatchEnv, ranks: Ranks
) -> "tuple[Cloning, Demonstrations]":
    """The learner and what it learns from.

    Raises:
        DatasetError: It is damaged, or none.
        SpecMismatchError: It is of another task, robot or observation.
    """
    from robot_rl.training.demonstrations import read_demonstrations  # pyarrow is an extra

    learner = make_learner(config, env.spec, ranks)
    assert isinstance(learner, Cloning)
    data = Path(config.training.demonstrations.data)
    _check_task(config, data)
    return learner, read_demonstrations(
        data, config.training.demonstrations, env.spec, learner.actor_groups,
        chunk_length=learner.chunk_length, seed=config.seed,
    )  # fmt: skip


def _check_task(config: RunConfig, data: Path) -> None:
    """Refuse episodes that say that they are of another of our tasks."""
    from robot_rl.datasets.reader import EpisodeDataset  # pyarrow

    if config.task is None:
        return
    own = component_of(config.task).name
    known = {one.name for one in COMPONENTS if one.group == "task"}
    others = sorted(set(EpisodeDataset(data).tasks) & known - {own})
    if others:
        raise SpecMismatchError(
            f"the demonstrations in {data} are of task {', '.join(others)}, and this run is of "
            f"task {own}; name others with training.demonstrations.data=..., or choose "
            f"task={others[0]}"
        )
