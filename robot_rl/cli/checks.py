"""Settings of a run that contradict each other: refused before anything is made or started.

What the configuration alone can tell, `RunConfig` refuses where it is composed.
"""

import operator
from collections.abc import Iterator, Sequence
from typing import Any

from configs.schema import RunConfig, component_of
from policies.networks.images import ImageEncoderKind
from policies.networks.trunks import NetworkKind
from robot_rl.core.env import BatchEnv
from robot_rl.core.errors import ConfigError
from robot_rl.core.learner import Learner
from robot_rl.learners.cloning import CloningConfig
from robot_rl.training.prior import check_place
from robot_rl.training.ranks import Ranks

_NEEDS_ENVS = (
    "training.snapshots.data", "training.prior.run", "training.offline.updates",
    "training.start.run", "training.symmetry", "training.replay.priority",
    "training.policy_average",
)  # fmt: skip
"""Fields that would do nothing where nothing is collected."""
_NOT_BESIDE_ROBOTS = (
    "training.symmetry", "training.snapshots.data", "training.demonstrations.data",
    "cluster.collectors", "training.policy_average", "training.offline.held_out",
    "training.offline.evaluation_interval",
)  # fmt: skip
"""Fields that mean nothing where robots collect."""


def check_settings(config: RunConfig, ranks: Ranks) -> None:
    """Refuse what cannot be trained as it was asked for.

    Raises:
        ConfigError: It cannot.
    """
    if config.cluster.collectors:
        _check_collectors(config, ranks)
    if isinstance(config.learner, CloningConfig):
        _check_cloning(config, ranks)
        return
    if config.training.demonstrations.data:
        raise ConfigError(
            f"training.demonstrations.data={config.training.demonstrations.data} is for learners "
            "that learn from demonstrations alone; choose learner=bc, flow or act, or mix them "
            "into what this learner sees with training.prior.run=..."
        )
    check_stored(config)


def check_stored(config: RunConfig) -> None:
    """Refuse settings that need stored experience without any, and experience that is not there.

    Raises:
        ConfigError: There is some of either.
    """
    if config.training.prior.run:
        check_place(config.training.prior)
    _check_real(config)
    _check_frozen(config)


def check_beside_robots(config: RunConfig) -> None:
    """Refuse what a learner beside robots would leave out without a word.

    Raises:
        ConfigError: It was asked for.
    """
    for name, value, usual in _asked_for(config, _NOT_BESIDE_ROBOTS):
        raise ConfigError(
            f"{name}={value} is for robot-rl train; a learner beside robots has no use for it: "
            f"{name}={usual or repr('')}"
        )
    check_stored(config)


def _asked_for(config: RunConfig, names: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """Fields that are not as they usually are: names, values and usual values."""
    for name in names:
        value, usual = (operator.attrgetter(name)(one) for one in (config, RunConfig()))
        if value != usual:
            yield name, getattr(value, "value", value), getattr(usual, "value", usual)


def _check_collectors(config: RunConfig, ranks: Ranks) -> None:
    """Refuse what cannot be collected elsewhere."""
    asked = f"cluster.collectors={config.cluster.collectors}"
    if ranks.count > 1:
        raise ConfigError(
            f"{asked} has one learner, and torchrun started {ranks.count}; leave torchrun out: "
            "robot-rl train ..."
        )
    component = component_of(config.learner)
    if "teacher" in component.needs:
        raise ConfigError(
            f"{asked}: learner={component.name} acts by more than its policy, which is all that "
            "collectors hear of; leave cluster.collectors out"
        )
    if config.training.demonstrations.data:
        raise ConfigError(f"{asked}: learning from demonstrations collects nothing; leave it out")
    if config.training.snapshots.data:
        raise ConfigError(
            f"{asked}: training.snapshots begins episodes in worlds of the learner's own process; "
            "leave one of the two out"
        )
    images = getattr(config.learner, "images", None)
    if images is not None and images.encoder is not ImageEncoderKind.none:
        raise ConfigError(
            f"{asked}: collectors send vectors, and learner.images.encoder={images.encoder.value} "
            "sees images; leave cluster.collectors out"
        )
    config.cluster.share(config.num_envs)


def _check_cloning(config: RunConfig, ranks: Ranks) -> None:
    """Refuse settings that would do nothing where nothing is collected."""
    if not config.training.demonstrations.data:
        raise ConfigError(
            "this learner learns from demonstrations, and none were named; expected "
            'training.demonstrations.data=<folder of a data set> (see "Behaviour cloning")'
        )
    for name, value, _ in _asked_for(config, _NEEDS_ENVS):
        raise ConfigError(
            f"{name}={value} is for learners that step envs, and this one learns from "
            "demonstrations alone; leave it out"
        )
    if ranks.count > 1:
        raise ConfigError(
            f"demonstrations are learned from in one process, and torchrun started {ranks.count}; "
            "leave torchrun out: robot-rl train ..."
        )


def _check_real(config: RunConfig) -> None:
    """Refuse to weigh simulated transitions beside none: H2O itself would say so much later."""
    gap, prior = getattr(config.learner, "dynamics_gap", None), config.training.prior
    if gap is not None and gap.weight > 0 and not (prior.run and prior.share > 0):
        raise ConfigError(
            f"learner.dynamics_gap.weight={gap.weight} weighs simulated transitions beside real "
            f"ones, of which training.prior.run='{prior.run}' and training.prior.share="
            f"{prior.share} give none; name them, with a share such as 0.5"
        )


def _check_frozen(config: RunConfig) -> None:
    """Refuse normalisers that would never take anything in."""
    frozen, training = getattr(config.learner, "freeze_normalizers", False), config.training
    if frozen and not (training.prior.run or training.start.run):
        raise ConfigError(
            "learner.freeze_normalizers=true leaves normalisers at stored experience, and there "
            "is none; name some with training.prior.run=..., or a run whose learner has "
            "seen some with training.start.run=..."
        )
    if not frozen:
        return
    parts = {name: getattr(config.learner, name, None) for name in ("actor", "critic", "value")}
    flash = [n for n, part in parts.items() if getattr(part, "kind", None) is NetworkKind.flash]
    if flash:
        raise ConfigError(
            f"learner.freeze_normalizers=true does not hold the batch norm of learner.{flash[0]}"
            ".kind=flash, which goes on with every minibatch; take mlp, simba or bro, or set "
            "learner.freeze_normalizers=false"
        )


def check_success_is_judged(config: RunConfig, learner: Learner, env: BatchEnv) -> None:
    """Refuse to count every episode of worlds that judge no success as a failure."""
    wanted = learner.monte_carlo_returns
    if wanted is None or not (wanted.online and wanted.failure_reward):
        return
    if not env.spec.judges_success:
        raise ConfigError(
            f"learner.conservatism.failure_reward={wanted.failure_reward} counts own episodes "
            "without success as failures, and these worlds judge none; "
            + (
                "name what does with env.success=..., or take failure_reward=0"
                if hasattr(config.env, "success")
                else "take failure_reward=0"
            )
        )
