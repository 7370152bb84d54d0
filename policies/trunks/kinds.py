"""Which network stands inside an actor or a critic: a choice that every learner leaves open."""

from enum import Enum
from typing import Protocol

from torch import nn

from policies.initialization import Initialization
from policies.mlp import Activation, ensemble_mlp, mlp
from policies.trunks.bronet import BroNet
from policies.trunks.flash import Flash
from policies.trunks.simba import Simba
from robot_rl.core.errors import ConfigError


class NetworkKind(Enum):
    """Shape of a network."""

    mlp = "mlp"
    simba = "simba"
    bro = "bro"
    flash = "flash"


class NetworkShape(Protocol):
    """What the config of an actor or a critic says about its network."""

    kind: NetworkKind
    hidden: list[int]
    activation: Activation
    layer_norm: bool
    width: int
    blocks: int
    initialization: Initialization


def make_network(
    shape: NetworkShape, inputs: int, outputs: int, *, members: int | None = None
) -> nn.Module:
    """Build the network of a config.

    Args:
        shape: `mlp` reads hidden, activation and layer_norm; all others width and blocks.
        inputs: Width of the input.
        outputs: Width of the output.
        members: E for an ensemble in one batched pass, None for a single network.

    Returns:
        (B, in) -> (B, out), or with members (B, in) or (E, B, in) -> (E, B, out).
    """
    if shape.kind is NetworkKind.mlp:
        sizes = [inputs, *shape.hidden, outputs]
        if members is None:
            return mlp(sizes, shape.activation, layer_norm=shape.layer_norm)
        return ensemble_mlp(members, sizes, shape.activation, layer_norm=shape.layer_norm)
    kinds = {NetworkKind.simba: Simba, NetworkKind.bro: BroNet, NetworkKind.flash: Flash}
    return kinds[shape.kind](members, inputs, outputs, width=shape.width, blocks=shape.blocks)


def check_shape(shape: NetworkShape, part: str) -> None:
    """Refuse networks that cannot be built.

    Args:
        shape: Config of an actor or a critic.
        part: Its name in messages, such as `actor`.
    """
    if not shape.hidden or min(shape.hidden) < 1:
        raise ConfigError(f"{part}.hidden needs widths of at least 1, got {shape.hidden}")
    for name in ("width", "blocks"):
        if getattr(shape, name) < 1:
            raise ConfigError(f"{part}.{name} must be at least 1, got {getattr(shape, name)}")
    if shape.kind is not NetworkKind.mlp and shape.initialization is not Initialization.torch:
        raise ConfigError(
            f"{part}.initialization {shape.initialization.value} is for an mlp; "
            f"{part}.kind {shape.kind.value} draws its weights in its own way"
        )
