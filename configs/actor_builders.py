"""Actors from typed configs, for the observation groups that an environment has."""

from collections.abc import Sequence
from typing import Any

from policies.deterministic_actor import DeterministicActor, DeterministicActorConfig
from policies.gaussian_actor import GaussianActor, GaussianActorConfig
from policies.history.encoder import EncoderConfig, EncoderKind
from policies.history.estimator import PRIVILEGED, Estimator, estimated_columns
from policies.normal_actor import NormalActor, NormalActorConfig
from robot_rl.core.env import EnvSpec
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.learner import Learner
from robot_rl.learners.estimation import (
    Algorithm,
    Estimating,
    EstimationConfig,
)
from robot_rl.learners.off_policy import DescentConfig, OffPolicyConfig
from robot_rl.learners.optimization import Reduce


def gaussian_actor(config: GaussianActorConfig, spec: EnvSpec) -> GaussianActor:
    """An actor that draws its actions."""
    return GaussianActor(config, *_sizes(config.groups, spec), **_sight(config, spec))


def deterministic_actor(config: DeterministicActorConfig, spec: EnvSpec) -> DeterministicActor:
    """An actor of one action for an observation."""
    return DeterministicActor(config, *_sizes(config.groups, spec), **_sight(config, spec))


def normal_actor(config: NormalActorConfig, spec: EnvSpec) -> NormalActor:
    """An actor that says how likely an action is.

    Raises:
        ConfigError: Its encoder is asked for an estimate, which nobody would train.
    """
    if config.encoder.estimate:
        raise ConfigError(
            f"learner.actor.encoder.estimate={list(config.encoder.estimate)} has no loss in this "
            "learner; leave it out, or choose one of the family of SAC and TD3"
        )
    sight = _sight(config, spec)
    return NormalActor(config, *_sizes(config.groups, spec), terms=sight["terms"])


def estimating(
    learner: Algorithm, actor: GaussianActor | DeterministicActor, config: Any, spec: EnvSpec,
    reduce: Reduce | None,
) -> Learner:  # fmt: skip
    """The learner itself, or with an encoder that learns beside it where its config says so.

    Args:
        learner: Trains the actor.
        actor: May have an encoder.
        config: Of the learner, with `estimation` and Adam's constants.
        spec: The environment.
        reduce: Joins the gradients of several processes.

    Raises:
        ConfigError: There is no encoder to learn.
    """
    encoder, estimation, descent = actor.config.encoder, config.estimation, config
    assert isinstance(estimation, EstimationConfig)
    assert isinstance(descent, DescentConfig)
    if not encoder.estimate and not estimation.next_obs:
        return learner
    if encoder.kind is EncoderKind.none:
        raise ConfigError(
            "learner.estimation.next_obs=true needs an encoder; choose "
            "learner.actor.encoder.kind=mlp or conv"
        )
    columns = _estimated(encoder, spec)
    estimator = Estimator(actor, columns, next_obs=estimation.next_obs, device=spec.device)
    groups = (PRIVILEGED,) if columns else ()
    around: dict[str, Any] = {
        "descent": descent, "groups": groups, "reduce": reduce,
        "frozen": isinstance(config, OffPolicyConfig) and config.freeze_normalizers,
    }  # fmt: skip
    return Estimating(learner, estimator, estimation, **around)


def _sizes(groups: Sequence[str], spec: EnvSpec) -> tuple[int, int]:
    """Width of what the actor sees, and of what it does."""
    for name in groups:
        if name not in spec.groups:
            raise ConfigError(unknown_name("group of learner.actor.groups", name, spec.groups))
        if len(spec.groups[name].shape) != 1:
            raise ConfigError(
                f"learner.actor.groups: group '{name}' has shape {spec.groups[name].shape}; "
                "these networks read vectors only"
            )
    return sum(spec.groups[name].shape[0] for name in groups), spec.action_size


def _sight(config: GaussianActorConfig | DeterministicActorConfig, spec: EnvSpec) -> dict[str, Any]:
    terms = tuple(term for name in config.groups for term in spec.groups[name].terms)
    return {"terms": terms, "estimated": len(_estimated(config.encoder, spec))}


def _estimated(encoder: EncoderConfig, spec: EnvSpec) -> list[int]:
    """Columns of the group `critic` that the encoder estimates."""
    if encoder.estimate and PRIVILEGED not in spec.groups:
        raise ConfigError(
            f"actor.encoder.estimate {encoder.estimate} names terms of the group '{PRIVILEGED}', "
            f"which this environment does not have; it has {', '.join(spec.groups)}"
        )
    terms = spec.groups[PRIVILEGED].terms if encoder.estimate else ()
    return estimated_columns(terms, encoder.estimate)
