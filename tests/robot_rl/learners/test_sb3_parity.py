"""`learner=sac_sb3` beside the library that it is named after: the same numbers, update for update.

Curves of five seeds cannot tell whether two learners are the same (docs/races/gymnasium.md). Twenty
updates from the same weights, batches and noise can.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor

from robot_rl.core.transition import Batch
from robot_rl.learners.sac import SAC
from tests.compositions import composed
from tests.fakes import LinearWorld, ToyEnv, random_batch

sb3 = pytest.importorskip("stable_baselines3", reason="needs stable-baselines3 (extra dev)")

UPDATES = 20
EPSILON = 1e-3
"""Of Adam, in both: with the usual 1e-8 a gradient of rounding alone, of a unit that one row wakes,
is a whole step, whose sign is a matter of chance."""
SPEC = ToyEnv(LinearWorld(groups={"actor": LinearWorld().groups["actor"]}), 2).spec
SIZES = (SPEC.groups["actor"].shape[0], SPEC.action_size)


class Spaces(gymnasium.Env[np.ndarray, np.ndarray]):
    """The same sizes, for the library."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZES[0],), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (SIZES[1],), np.float32)


def ours() -> SAC:
    words = ["task=tracking", "learner=sac_sb3", "learner.compile=false"]
    config = composed([*words, f"learner.adam_epsilon={EPSILON}"]).config.learner
    return SAC(config, SPEC, seed=0)


def theirs() -> Any:
    from stable_baselines3.common.logger import Logger

    model: Any = sb3.SAC("MlpPolicy", Spaces(), device="cpu", seed=0)
    model.set_logger(Logger(folder=None, output_formats=[]))
    half = EPSILON / 2  # of the critics, whose loss has a factor 1/2 there
    for optimizer, epsilon in (
        (model.actor.optimizer, EPSILON), (model.critic.optimizer, half),
        (model.ent_coef_optimizer, EPSILON),
    ):  # fmt: skip
        for group in optimizer.param_groups:
            group["eps"] = epsilon
    return model


def pairs(model: Any, learner: SAC) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Tensors that mean the same: name, ours as the library shapes it, theirs."""
    actor: Any = learner.actor
    mine: dict[str, Tensor] = dict(actor.named_parameters())
    yield from (
        (f"actor {layer} {kind}", mine[f"network.{layer}.{kind}"],
         model.actor.latent_pi.get_parameter(f"{layer}.{kind}"))
        for layer in (0, 2) for kind in ("weight", "bias")
    )  # fmt: skip
    for kind in ("weight", "bias"):
        heads = mine[f"network.4.{kind}"].chunk(2)
        for name, head in zip(("mu", "log_std"), heads, strict=True):
            yield f"actor {name} {kind}", head, getattr(getattr(model.actor, name), kind)
    critics: Any = {"critic": learner.critic, "critic_target": learner.target_critic}
    for net, network in critics.items():
        found = dict(network.named_parameters())
        for member, layer in ((m, n) for m in (0, 1) for n in (0, 2, 4)):
            parts = model.policy.get_parameter
            place = f"{net}.qf{member}.{layer}"
            yield (
                f"{place} weight",
                found[f"network.{layer}.weight"][member].T,
                parts(f"{place}.weight"),
            )
            yield f"{place} bias", found[f"network.{layer}.bias"][member, 0], parts(f"{place}.bias")


def test_twenty_updates_end_with_the_weights_of_stable_baselines3(monkeypatch):
    learner, model = ours(), theirs()
    with torch.no_grad():
        for _, mine, other in pairs(model, learner):
            other.copy_(mine)
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(UPDATES, 2, 256, SIZES[1], generator=generator)
    batches = [random_batch(SPEC, 256, seed=number) for number in range(UPDATES)]

    _feed_ours(monkeypatch, noise)
    for batch in batches:
        learner.update(batch)
    monkeypatch.undo()
    _feed_theirs(monkeypatch, model, batches, noise)
    model.train(gradient_steps=UPDATES, batch_size=256)

    errors, moved = _relative(model, learner), _relative(model, ours())
    assert min(moved.values()) > 3e-4, "a test in which nothing moves shows nothing"
    wrong = {name: one for name, one in errors.items() if one > 0.02 * moved[name]}
    assert wrong == {}
    alpha = float(model.log_ent_coef.exp().detach())
    assert float(learner.temperature.value()) == pytest.approx(alpha, rel=1e-5)


@torch.no_grad()
def _relative(model: Any, learner: SAC) -> dict[str, float]:
    """Differences by the size of the library's tensors."""
    return {
        name: float((mine - other).norm() / other.norm())
        for name, mine, other in pairs(model, learner)
    }


def _feed_ours(monkeypatch: pytest.MonkeyPatch, noise: Tensor) -> None:
    """Ours draws for the target first, then for the actor."""
    drawn = iter([one for update in noise for one in (update[1], update[0])])
    monkeypatch.setattr(torch, "randn", lambda *_, **__: next(drawn))


def _feed_theirs(
    monkeypatch: pytest.MonkeyPatch, model: Any, batches: list[Batch], noise: Tensor
) -> None:
    """The library draws for the actor first; its `dones` stand for our discount."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    drawn = iter([one for update in noise for one in (update[0], update[1])])
    monkeypatch.setattr(
        torch.distributions.normal, "_standard_normal", lambda *_, **__: next(drawn)
    )
    given = iter(batches)

    def sample(*_: Any, **__: Any) -> ReplayBufferSamples:
        batch = next(given)
        return ReplayBufferSamples(
            batch.obs["actor"], batch.action, batch.next_obs["actor"],
            (batch.discount == 0).float()[:, None], batch.reward[:, None],
            torch.full((256, 1), 0.9),
        )  # fmt: skip

    monkeypatch.setattr(model.replay_buffer, "sample", sample)
