"""The structures of `update.cpp`, and how they are filled from networks and optimisers."""

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int32, c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor, nn

from policies.networks.inputs import RunningNormalizer
from policies.networks.mlp import (
    LAYER_NORM_EPSILON,
    Activation,
    Dense,
    EnsembleLayerNorm,
    EnsembleLinear,
)
from robot_rl.learners.optimization import Optimizer

MAX_LAYERS = 8
"""Linear layers that a network may have, `kMaxLayers`."""

_ACTIVATIONS: dict[type[nn.Module], int] = {
    nn.ReLU: 0, nn.Tanh: 1, nn.SiLU: 2, nn.ELU: 3, nn.GELU: 4,
}  # fmt: skip
assert len(_ACTIVATIONS) == len(Activation)


class NotCoveredError(Exception):
    """The compiled update does not cover something; its message names it."""


class Parameter(ctypes.Structure):
    """A trained tensor, its moving copy, Adam's means and its gradient."""

    _fields_ = [
        ("value", c_void_p), ("target", c_void_p), ("mean", c_void_p), ("square", c_void_p),
        ("gradient", c_void_p), ("size", c_int64),
    ]  # fmt: skip


class Layer(ctypes.Structure):
    """A linear layer, and the layer norm behind it."""

    _fields_ = [
        ("weight", Parameter), ("bias", Parameter), ("scale", Parameter), ("shift", Parameter),
        ("inputs", c_int32), ("outputs", c_int32),
    ]  # fmt: skip


class NetworkStructure(ctypes.Structure):
    """A perceptron, or an ensemble of them, behind a normaliser."""

    _fields_ = [
        ("layers", Layer * MAX_LAYERS), ("depth", c_int32), ("members", c_int32),
        ("activation", c_int32), ("layer_norm", c_int32), ("outputs_first", c_int32),
        ("bf16", c_int32), ("norm_epsilon", c_float), ("obs_mean", c_void_p),
        ("obs_scale", c_void_p), ("obs_clip", c_float), ("obs_size", c_int32),
    ]  # fmt: skip


class AdamStructure(ctypes.Structure):
    """An optimiser."""

    _fields_ = [
        ("steps", c_void_p), ("count", c_int32), ("rate", c_double), ("beta1", c_double),
        ("beta2", c_double), ("epsilon", c_double), ("decay", c_double), ("max_norm", c_double),
    ]  # fmt: skip


class CriticsStructure(ctypes.Structure):
    """The critics and how targets and objective are taken from them."""

    _fields_ = [
        ("network", NetworkStructure), ("adam", AdamStructure), ("atoms", c_int32),
        ("low", c_float), ("spacing", c_float), ("rule", c_int32), ("objective", c_int32),
        ("drawn", c_void_p), ("drawn_count", c_int32), ("tau", c_float),
    ]  # fmt: skip


class BatchStructure(ctypes.Structure):
    """A minibatch."""

    _fields_ = [
        ("rows", c_int32), ("actor_obs", c_void_p), ("critic_obs", c_void_p),
        ("action", c_void_p), ("reward", c_void_p), ("discount", c_void_p), ("weight", c_void_p),
        ("next_actor_obs", c_void_p), ("next_critic_obs", c_void_p),
    ]  # fmt: skip


class ActorRowsStructure(ctypes.Structure):
    """Rows of the actor's step."""

    _fields_ = [
        ("rows", c_int32), ("actor_obs", c_void_p), ("critic_obs", c_void_p),
        ("weight", c_void_p), ("noise", c_void_p), ("next_log_prob", c_void_p),
    ]  # fmt: skip


class TemperatureStructure(ctypes.Structure):
    """The temperature."""

    _fields_ = [
        ("parameter", Parameter), ("adam", AdamStructure), ("loss", c_int32),
        ("target_entropy", c_float),
    ]  # fmt: skip


class SACStructure(ctypes.Structure):
    """An update of soft actor-critic."""

    _fields_ = [
        ("batch", BatchStructure), ("next_noise", c_void_p), ("actor", NetworkStructure),
        ("actor_adam", AdamStructure), ("action_size", c_int32), ("log_std_min", c_float),
        ("log_std_max", c_float), ("log_std_bound", c_int32), ("critics", CriticsStructure),
        ("temperature", TemperatureStructure), ("entropy_in_target", c_int32),
        ("entropy_at_next", c_int32), ("temperature_with_critics", c_int32),
        ("update_temperature", c_int32),
        ("actor_rows", ActorRowsStructure), ("threads", c_int32), ("workspace", c_void_p),
        ("error", c_void_p),
        ("next_log_prob", c_void_p), ("metrics", c_void_p),
    ]  # fmt: skip


class TD3Structure(ctypes.Structure):
    """An update of TD3."""

    _fields_ = [
        ("batch", BatchStructure), ("next_noise", c_void_p), ("actor", NetworkStructure),
        ("actor_adam", AdamStructure), ("action_size", c_int32), ("target_actor", c_int32),
        ("critics", CriticsStructure), ("actor_tau", c_float), ("threads", c_int32),
        ("workspace", c_void_p), ("error", c_void_p), ("metrics", c_void_p),
    ]  # fmt: skip


class NetworkTensors:
    """The tensors of a network that an update reads and writes, as a structure.

    It keeps its gradients; all else belongs to the network and its optimiser.
    """

    def __init__(
        self, owner: Any, optimizer: Optimizer, target: Any | None, *, name: str,
        action_size: int = 0, bf16: bool = False,
    ) -> None:  # fmt: skip
        """Find the layers.

        Args:
            owner: Actor or critic: a `network` behind a `normalizer`.
            optimizer: Of its parameters.
            target: Its moving copy, or None.
            name: Of the network, for messages.
            action_size: Inputs behind the observations.
            bf16: Compute the products of hidden layers in bf16.

        Raises:
            NotCoveredError: It is no perceptron in float32 on the CPU.
        """
        self._optimizer, self._action_size, self._bf16 = optimizer, action_size, bf16
        self._sources = _layers_of(owner.network, name)
        self._targets = None if target is None else _layers_of(target.network, name)
        trained = [p for layer in self._sources for p in layer if p is not None]
        if {id(p) for p in trained} != {id(p) for p in optimizer.params}:
            raise NotCoveredError(f"{name} trains more than the layers of a perceptron")
        self._gradients = {id(p): torch.zeros_like(p) for p in trained}
        self._normalizer = owner.normalizer
        self._kinds = _kinds_of(owner.network)

    @property
    def outputs(self) -> int:
        """Width of its output."""
        return self._sources[-1][1].shape[-1]

    def fill(self, net: Any, adam: Any) -> None:
        """Write addresses into a structure of the network and one of its optimiser.

        They hold as long as `Optimizer.tensors` returns the same object.
        """
        tensors = self._optimizer.tensors()
        moments = {
            id(p): (mean, square)
            for p, mean, square in zip(
                self._optimizer.params, tensors.means, tensors.squares, strict=True
            )
        }
        targets = self._targets or [(None,) * 4] * len(self._sources)
        for i, (source, target) in enumerate(zip(self._sources, targets, strict=True)):
            layer = net.layers[i]
            for name, p, copy in zip(
                ("weight", "bias", "scale", "shift"), source, target, strict=True
            ):
                if p is not None:
                    fields = (p, copy, *moments[id(p)], self._gradients[id(p)])
                    setattr(layer, name, parameter(*fields))
            weight: Any = source[0]
            plain = weight.ndim == 2
            layer.inputs, layer.outputs = weight.shape[::-1] if plain else weight.shape[1:]
            net.outputs_first, net.members = plain, 1 if plain else weight.shape[0]
        net.depth, net.bf16 = len(self._sources), self._bf16
        net.obs_size = net.layers[0].inputs - self._action_size
        net.activation, net.layer_norm, net.norm_epsilon = *self._kinds, LAYER_NORM_EPSILON
        if isinstance(self._normalizer, RunningNormalizer):
            net.obs_mean = self._normalizer.mean.data_ptr()
            net.obs_scale = self._normalizer.scale.data_ptr()
            net.obs_clip = self._normalizer.clip
        fill_adam(adam, self._optimizer)


def parameter(
    value: Tensor, target: Tensor | None, mean: Tensor, square: Tensor, gradient: Tensor
) -> Parameter:
    """Addresses of the tensors of a parameter, all of one shape."""
    tensors = [value, mean, square, gradient, *([] if target is None else [target])]
    if not all(t.is_contiguous() and t.dtype is torch.float32 and t.is_cpu for t in tensors):
        raise NotCoveredError("weights are not contiguous float32 tensors on the CPU")
    return Parameter(
        value.data_ptr(), None if target is None else target.data_ptr(), mean.data_ptr(),
        square.data_ptr(), gradient.data_ptr(), value.numel(),
    )  # fmt: skip


def fill_adam(adam: Any, optimizer: Optimizer) -> None:
    """Write an optimiser's constants and the address of its counts; the step size comes later."""
    constants, count = optimizer.constants(), optimizer.tensors().count
    adam.steps, adam.count = count.data_ptr(), count.numel()
    adam.beta1, adam.beta2, adam.epsilon = constants.beta1, constants.beta2, constants.epsilon
    adam.decay, adam.max_norm = constants.weight_decay, constants.max_norm


_LayerTensors = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""Weight, bias, and scale and shift of the layer norm behind."""


def _layers_of(network: Any, name: str) -> list[_LayerTensors]:
    if not isinstance(network, Dense):
        raise NotCoveredError(f"{name} is no plain perceptron (kind=mlp without encoder)")
    layers: list[_LayerTensors] = []
    for module in network:
        if isinstance(module, nn.Linear | EnsembleLinear):
            layers.append((module.weight, module.bias, None, None))
        elif isinstance(module, nn.LayerNorm | EnsembleLayerNorm):
            layers[-1] = (*layers[-1][:2], module.weight, module.bias)
    if len(layers) > MAX_LAYERS:
        raise NotCoveredError(f"{name} has {len(layers)} layers, more than {MAX_LAYERS}")
    return layers


def _kinds_of(network: Sequence[nn.Module] | Any) -> tuple[int, int]:
    """Activation, and whether there is layer norm."""
    activations = {_ACTIVATIONS[type(m)] for m in network if type(m) in _ACTIVATIONS}
    norms = any(isinstance(m, nn.LayerNorm | EnsembleLayerNorm) for m in network)
    return (activations.pop() if activations else 0), int(norms)
