"""Behaviour cloning: a network learns to answer observations as demonstrations did.

Which network and which loss are handed in: the mean of the actions, their likelihood, the velocity
of a flow. Observations are normalised by the statistics of the demonstrations, taken once.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from robot_rl.core.env import EnvStep, Obs
from robot_rl.core.episodic import begin_episodes
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.learners.off_policy import DescentConfig, check_ranges
from robot_rl.learners.optimization import Optimizer, Reduce, autocast, soft_update

Loss = Callable[[Any, Obs, Tensor, Tensor, torch.Generator], Tensor]
"""(network, obs, chunk (B, H, A), valid (B, H), generator) -> 0-dim."""


class ClonedPolicy(Protocol):
    """The part of a network that this learner uses."""

    def __call__(self, obs: Obs) -> Tensor:
        """Actions (N, A), or chunks (N, H, A)."""
        ...

    def update_statistics(self, obs: Obs) -> None:
        """Take observations into the normaliser."""
        ...

    def constrain(self) -> None:
        """Project the weights after a step of the optimiser; most networks need none."""
        ...


@dataclass(kw_only=True)
class CloningConfig(DescentConfig):
    """How demonstrations are learned from."""

    batch_size: int = 256
    """Chunks per update."""
    actor_lr: float = 1e-3
    """Step size."""
    average: float = 0.0
    """Share that a running mean of the weights keeps in every update; it is what acts, is evaluated
    and deployed. 0 takes the weights as they are."""
    chunk_length: int = 1
    """H: actions that one run of the network gives."""
    replan_interval: int = 1
    """Actions that are done before it runs again."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        check_ranges(self, {
            "batch_size": (1, 1e9), "actor_lr": (0, 1), "average": (0, 0.999999),
            "chunk_length": (1, 1000), "replan_interval": (1, self.chunk_length),
        })  # fmt: skip


class Cloning:
    """A `Learner` whose batches are demonstrations; rewards and what came next do not count."""

    actor_groups: tuple[str, ...] = ("actor",)
    critic_groups: tuple[str, ...] = ()
    gamma = 1.0
    n_step = 1

    def __init__(
        self, config: CloningConfig, network: nn.Module, loss: Loss, *, device: torch.device,
        seed: int, reduce: Reduce | None = None,
        wrap: Callable[[nn.Module], nn.Module] = lambda network: network,
    ) -> None:  # fmt: skip
        """Take over the network.

        Args:
            config: Hyperparameters.
            network: A `ClonedPolicy`; trained in place.
            loss: What it is trained by.
            device: Where it lives.
            seed: Seed of what losses draw.
            reduce: Joins the gradients of several processes.
            wrap: Makes of the network what acts: a queue around one that gives chunks.
        """
        self.config = config
        self.samples_per_update = config.batch_size
        self.chunk_length = config.chunk_length
        """H: actions in a demonstrated chunk."""
        self.updates = 0
        """Updates done."""
        self.network: Any = network.to(device)
        self._loss = loss
        shared = {id(buffer): buffer for buffer in self.network.buffers()}
        self._average: Any = self.network
        if config.average > 0:
            self._average = copy.deepcopy(self.network, shared).requires_grad_(False)
        self._policy = wrap(self._average)
        self._drops = any(isinstance(m, nn.Dropout) and m.p > 0 for m in self.network.modules())
        self._seed = seed
        self.network.eval()
        self._average.eval()
        self._optimizer = Optimizer(
            self.network.parameters(), config.actor_lr, config,
            after_step=self.network.constrain, reduce=reduce,
        )  # fmt: skip
        self._device = device
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(derive_seed(seed, "losses"))

    @torch.no_grad()
    def act(self, obs: Obs, explore: bool) -> Tensor:
        """Actions, (N, A), in [-1, 1]; nothing is explored."""
        return self._policy(obs)

    def begin(self, mask: Tensor) -> None:
        """Forget what was planned in the masked worlds, (N,) bool."""
        begin_episodes(self._policy, mask)

    def observe(self, step: EnvStep) -> None:
        """Nothing: the statistics are those of the demonstrations."""

    def observe_stored(self, obs: Obs) -> None:
        """Take demonstrated observations, groups (N, D), into the normaliser."""
        self.network.update_statistics(obs)

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], None]:
        """One step down the loss.

        Args:
            batch: `extra` has `chunk` (B, H, A) and `valid` (B, H) where H is more than 1.

        Returns:
            Detached metrics, and no priorities.
        """
        with self._training():
            with autocast(self._device, self.config.precision):
                shown = self._demonstrated(batch)
                loss = self._loss(self.network, batch.obs, *shown, self._generator)
            self._optimizer.step(loss)
        self.updates += 1
        if self._average is not self.network:
            sources = list(self.network.parameters())
            soft_update(list(self._average.parameters()), sources, 1 - self.config.average)
            with torch.no_grad():
                self._average.constrain()
        return {"actor_loss": loss.detach()}, None

    @torch.no_grad()
    def held_out_loss(self, batch: Batch) -> Tensor:
        """Loss of what acts, on a batch that it does not learn from; the same draws every time."""
        generator = torch.Generator(device=self._device).manual_seed(0)
        return self._loss(self._average, batch.obs, *self._demonstrated(batch), generator)

    def policy(self) -> nn.Module:
        """What acts."""
        return self._policy

    def state_dict(self) -> dict[str, Any]:
        """Weights, their running mean, optimiser, counter and RNG."""
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            "generator": self._generator.get_state(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`: the next update is bit-equal."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self._generator.set_state(state["generator"])
        self.updates = int(state["updates"])

    def _parts(self) -> dict[str, Any]:
        return {"actor": self.network, "average": self._average, "optimizer": self._optimizer}

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Batch norm sees demonstrations; dropout draws by the update: torch's RNG is not saved."""
        on_cuda = self._device.type == "cuda"
        devices = [self._device] if on_cuda else []
        with torch.random.fork_rng(devices) if self._drops else nullcontext():
            if self._drops:
                torch.manual_seed(derive_seed(self._seed, f"dropout {self.updates}"))
            self.network.train()
            yield
            self.network.eval()

    def _demonstrated(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Chunk (B, H, A), and which of its actions were demonstrated, (B, H) bool."""
        if "chunk" in batch.extra:
            return batch.extra["chunk"], batch.extra["valid"]
        valid = torch.ones_like(batch.action[:, :1], dtype=torch.bool)
        return batch.action[:, None], valid
