"""Movement of weights in all learners: a step of Adam, and number formats.

A step is: gradients of these parameters alone, joined over the processes, scaled down to their
largest norm, Adam or AdamW, projection of the weights.
"""

import functools
import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from policies.networks.mlp import OneDnnMatmul, is_faster
from robot_rl.core.errors import ConfigError

_logger = logging.getLogger(__name__)

BF16_UNITS = ("avx512_bf16", "amx_bf16", "avx10_2")
"""Units of x86 processors for products in bf16, as torch names them."""

Reduce = Callable[[Sequence[nn.Parameter]], None]
"""Joins the gradients of several processes in place: their mean."""


class Precision(Enum):
    """Number format of forward and backward passes; weights and losses are always float32."""

    fp32 = "fp32"
    bf16 = "bf16"


@dataclass(kw_only=True)
class ScheduleConfig:
    """Rise and fall of step sizes, over the updates of a learner."""

    warmup: int = 0
    """Updates over which step sizes rise from 0 in the beginning, all but the temperature's."""
    end: float = 1.0
    """Share of the step sizes that is left after `decay` updates: a half cosine."""
    decay: int = 0
    """Updates over which step sizes fall to their end; 0 keeps them."""

    def __post_init__(self) -> None:
        ranges = {"warmup": (0, 1e12), "end": (0, 1), "decay": (0, 1e12)}
        check_ranges(self, ranges, "learner.lr_schedule")
        if self.decay > 0 and self.end == 1:
            raise ConfigError(
                f"learner.lr_schedule.decay={self.decay} was asked for, but step sizes fall to "
                "end=1, which is all of them: name what is left too, such as "
                "learner.lr_schedule.end=0, or keep them, with decay=0"
            )


@dataclass(kw_only=True)
class DescentConfig:
    """Settings of steps down a gradient."""

    lr_schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Rise and fall of the step sizes."""
    adam_betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """Decay of Adam's two running means."""
    adam_epsilon: float = 1e-8
    """Added to the denominator of Adam."""
    weight_decay: float = 0.0
    """Decoupled decay (AdamW) of the weights of actor and critics; 0 is plain Adam."""
    max_grad_norm: float = 0.0
    """Gradients of actor and critics are scaled down to this norm; 0 leaves them."""
    precision: Precision = Precision.fp32
    """bf16 is faster where the processor has it; losses and weights stay in float32."""

    def __post_init__(self) -> None:
        if len(self.adam_betas) != 2 or not all(0 <= beta < 1 for beta in self.adam_betas):
            raise ConfigError(
                f"learner.adam_betas must be two numbers in [0, 1), got {self.adam_betas}"
            )
        check_ranges(self, {
            "adam_epsilon": (0, 1), "weight_decay": (0, 1e3), "max_grad_norm": (0, 1e9),
        })  # fmt: skip


@dataclass(frozen=True)
class AdamTensors:
    """State of Adam, by parameter."""

    count: Tensor
    """All counts of steps as one tensor."""
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]
    """Views of `count`."""


class AdamConstants(NamedTuple):
    """Constants of a step, and the largest norm of its gradients; 0 leaves them."""

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    max_norm: float


class _Uncompiled(torch.optim.Optimizer):
    """Optimiser without the wrappers that keep torch's compiler off some of its methods.

    They import the compiler, which takes a second, and do nothing else where nothing is compiled.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class _Adam(_Uncompiled, torch.optim.Adam):
    pass


class _AdamW(_Uncompiled, torch.optim.AdamW):
    pass


class Optimizer:
    """Adam over some parameters, from the loss to the projected weights."""

    def __init__(
        self,
        params: Iterable[nn.Parameter | Tensor],
        lr: float,
        config: DescentConfig,
        *,
        after_step: Callable[[], None] | None = None,
        reduce: Reduce | None = None,
        weight_decay: float | None = None,
        max_grad_norm: float | None = None,
        warm_up: bool = True,
        interval: int = 1,
    ) -> None:
        """Take over the parameters.

        Args:
            params: What is trained; frozen ones among them are left out.
            lr: Step size at the start.
            config: Adam's constants, clipping, schedule.
            after_step: Called after every step, without gradients: projection of the weights.
            reduce: Joins gradients of several processes.
            weight_decay: Instead of the config's.
            max_grad_norm: Instead of the config's.
            warm_up: Follow the config's warm-up.
            interval: Updates of the learner per step taken here, so that all schedules of a learner
                end together; they stand still while it takes no step here.
        """
        self.params: list[Any] = [one for one in params if one.requires_grad]
        self.interval = interval
        """Updates of the learner per step from here on; a phase of training may have its own."""
        self._lr, self._schedule = lr, config.lr_schedule
        self._after_step, self._reduce = after_step, reduce
        self._max_norm = config.max_grad_norm if max_grad_norm is None else max_grad_norm
        decay = config.weight_decay if weight_decay is None else weight_decay
        device = self.params[0].device
        if device.type == "cpu" and config.precision is Precision.bf16:
            warn_without_bf16_units()
        self._warmup = self._schedule.warmup if warm_up else 0
        self._scheduled = self._schedule.decay > 0 or self._warmup > 0
        # On CUDA the step size lies on the device, where a graph of the update reads it too.
        self._on_device = device.type == "cuda"
        rate = torch.tensor(lr, device=device) if self._on_device or self._scheduled else lr
        kind = _AdamW if decay > 0 else _Adam
        self._adam = kind(
            self.params, rate, betas=(config.adam_betas[0], config.adam_betas[1]),
            eps=config.adam_epsilon, weight_decay=decay, fused=True, capturable=self._on_device,
        )  # fmt: skip
        # Of the learner, up to here: rates follow them, now or where another run goes on.
        self._updates = torch.zeros((), dtype=torch.int64, device=device)
        self._tensors: AdamTensors | None = None

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of a loss; other leaves of its graph get no gradient."""
        for param in self.params:
            param.grad = None
        loss.backward(inputs=self.params)
        self.descend()

    def descend(self) -> None:
        """One step down the gradients that the parameters hold."""
        if self._reduce is not None:
            self._reduce(self.params)
        if self._max_norm > 0:
            nn.utils.clip_grad_norm_(self.params, self._max_norm)
        if self._scheduled:
            share = self._share(self._updates, torch.cos)
            self._adam.param_groups[0]["lr"].copy_(self._lr * share)
        self._updates += self.interval
        self._move()
        if self._after_step is not None:
            with torch.no_grad():
                self._after_step()

    def state_dict(self) -> dict[str, Any]:
        """Adam's running means and its count of steps, and how far a schedule is or would be."""
        return {**self._adam.state_dict(), "updates": int(self._updates)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`; step size, decay and constants stay as configured.

        A run may go on with others, or on another kind of device.
        """
        own = [
            {name: value for name, value in group.items() if name != "params"}
            for group in self._adam.param_groups
        ]
        adam = {name: part for name, part in state.items() if name != "updates"}
        self._adam.load_state_dict(adam)
        for group, settings in zip(self._adam.param_groups, own, strict=True):
            group.update(settings)
        counted = self._adam.state.get(self.params[0], {}).get("step", 0.0) * self.interval
        # A state of before updates were counted has steps alone; those of an actor in an offline
        # phase, one in each update, are then counted too often.
        updates = int(state.get("updates", counted))
        self._updates.fill_(updates)
        self._tensors = None

    def forget(self) -> None:
        """Begin Adam's running means and counts anew, in place; a schedule goes on."""
        for state in self._adam.state.values():
            for tensor in state.values():
                tensor.zero_()

    @property
    def joins_processes(self) -> bool:
        """True if gradients are joined over several processes."""
        return self._reduce is not None

    def tensors(self) -> "AdamTensors":
        """Adam's state, made where no step was taken yet; another object once it lies elsewhere."""
        if self._tensors is None:
            for param in self.params:
                if not self._adam.state.get(param):
                    self._adam.state[param] = {
                        "step": torch.zeros((), device=param.device),
                        "exp_avg": torch.zeros_like(param), "exp_avg_sq": torch.zeros_like(param),
                    }  # fmt: skip
            self._tensors = self._find_tensors()
        assert self._tensors is not None
        return self._tensors

    def constants(self) -> "AdamConstants":
        """Constants of a step."""
        group = self._adam.param_groups[0]
        beta1, beta2 = group["betas"]
        return AdamConstants(beta1, beta2, group["eps"], group["weight_decay"], self._max_norm)

    def advance(self) -> float:
        """Count a step that is taken elsewhere, on `tensors`, and return its step size."""
        rate = self._adam.param_groups[0]["lr"]
        if self._scheduled:  # in Python: its few tensor operations would take longer than a layer
            rate.fill_(self._lr * self._share(int(self._updates), math.cos))
        self._updates += self.interval
        return float(rate)

    def _move(self) -> None:
        """A step of Adam: torch's, and from the second one on its kernel without the bookkeeping.

        That takes as long as the kernel itself for networks of a few hundred units on a CPU.
        """
        grads = [param.grad for param in self.params]
        tensors = self._tensors
        if self._on_device or tensors is None or any(grad is None for grad in grads):
            self._adam.step()
            self._tensors = self._find_tensors()
            return
        group = self._adam.param_groups[0]
        kernels: Any = torch  # their names are private, and what torch's own optimisers call
        adam = kernels._fused_adamw_ if group["weight_decay"] > 0 else kernels._fused_adam_
        with torch.no_grad():
            tensors.count.add_(1)
            adam(
                self.params, grads, tensors.means, tensors.squares, [], tensors.steps,
                lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
                weight_decay=group["weight_decay"], amsgrad=False, maximize=False,
            )  # fmt: skip

    def _find_tensors(self) -> "AdamTensors | None":
        states = [self._adam.state.get(param) for param in self.params]
        found: list[dict[str, Tensor]] = [state for state in states if state]
        if self._on_device or len(found) < len(self.params):
            return None
        count = torch.stack([state["step"] for state in found])
        for state, step in zip(found, count.unbind(), strict=True):
            state["step"] = step  # a view: they are counted up together
        means, squares, steps = (
            [state[name] for state in found] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        return AdamTensors(count, means, squares, steps)

    def _share(self, updates: Any, cos: Callable[[Any], Any]) -> Any:
        """Linear warm-up, then half a cosine to the last share, over the learner's updates.

        Args:
            updates: A number, or a tensor that a graph of the update reads.
            cos: Of such.
        """
        decay, end, share = self._schedule.decay, self._schedule.end, 1.0
        if decay > 0:
            share = end + 0.5 * (1 - end) * (1 + cos(math.pi * _at_most_one(updates / decay)))
        if self._warmup > 0:
            share = share * _at_most_one(updates / self._warmup)
        return share


def _at_most_one(x: Any) -> Any:
    return x.clamp(max=1.0) if isinstance(x, Tensor) else min(x, 1.0)


@functools.cache
def warn_without_bf16_units() -> None:
    """Say once that this processor has no units for bf16, where it says so."""
    known = torch.cpu.get_capabilities()
    if known.get("architecture") != "x86_64" or any(known.get(name) for name in BF16_UNITS):
        return
    _logger.warning(
        "learner.precision=bf16, but this processor (%s) has no units for it (%s): an update takes "
        "many times as long as in fp32, 15 times where it was measured; set learner.precision=fp32",
        known.get("cpu_name", "x86_64"), ", ".join(BF16_UNITS),
    )  # fmt: skip


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Context of forward passes; losses are computed outside, in float32."""
    if precision is Precision.fp32:
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


class TensorFloat32:
    """Context in which float32 products on a GPU have ten bits and run on its matrix units.

    For what stays float32 beside bf16, which has seven bits: the products of last layers, and of
    their gradients. The setting is the process's.
    """

    def __init__(self, wanted: bool) -> None:
        """Decide whether to change it.

        Args:
            wanted: False leaves the context without effect.
        """
        self.changes_setting = wanted
        """False if the context does nothing."""
        self._before = "none"

    def __enter__(self) -> None:
        if self.changes_setting:
            products = _gpu_products()
            self._before, products.fp32_precision = products.fp32_precision, "tf32"

    def __exit__(self, *exception: object) -> None:
        if self.changes_setting:
            _gpu_products().fp32_precision = self._before


def _gpu_products() -> Any:
    settings: Any = torch.backends.cuda  # torch does not annotate what it has there
    return settings.matmul


def fast_products(
    device: torch.device, precision: Precision, rows: int, weight_size: int
) -> OneDnnMatmul | TensorFloat32:
    """Context in which a learner's own products are fast.

    Args:
        device: Of the learner.
        precision: Asked for.
        rows: Of a batch.
        weight_size: Entries of the largest weight.
    """
    if device.type == "cuda":
        return TensorFloat32(precision is Precision.bf16)
    return OneDnnMatmul(device.type == "cpu" and is_faster(rows, weight_size))


def check_ranges(
    config: object, ranges: Mapping[str, tuple[float, float]], owner: str = "learner"
) -> None:
    """Refuse fields outside their range, NaN too.

    Args:
        config: A learner's config, or a part of it.
        ranges: Field to its smallest and largest value.
        owner: What the fields belong to, as the command line names it.

    Raises:
        ConfigError: One lies outside.
    """
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        if not low <= value <= high:
            raise ConfigError(f"{owner}.{name} must lie in [{low:g}, {high:g}], got {value}")
