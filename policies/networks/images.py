"""Encoders of camera images, and the trunk by which actors and critics read what they encode.

An encoder turns the stacked frames of a camera, uint8 (B, S, H, W, C), into features (B, R); the
group keeps its name. Encoders are shared by actor and critics, trunks are not: a linear layer,
layer norm and tanh bring the features of each camera to a few dozen entries, beside which vectors
such as proprioception are put (Yarats et al. 2021, DrQ-v2, arXiv:2107.09645, and its code).

Frames stay uint8 until the first layer, and channels last in memory throughout: that is how cameras
deliver them and what convolutions on CPUs and tensor cores want.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

import torch
from torch import Tensor, nn

from policies.networks.pretrained import PretrainedModel
from robot_rl.core.env import EnvSpec, GroupSpec, Obs
from robot_rl.core.errors import ConfigError, unknown_name
from robot_rl.core.observation import IMAGE_PREFIX

_KERNEL = 3
"""Pixels of a convolution's kernel in each direction."""
_GROUPS = 4
"""Groups of channels that a ResNet normalises together (SERL)."""
_ATTENTION_HEADS = 4
"""Heads of attention (IBRL)."""
_EMBEDDINGS = 8
"""Spatial embeddings of every channel (SERL)."""


class ImageEncoderKind(Enum):
    """Shape of an image encoder."""

    none = "none"
    """Images are not read."""
    conv = "conv"
    """Convolutions of 3 x 3 without padding, and ReLU: DrQ-v2, RLPD."""
    resnet = "resnet"
    """Residual blocks with group norm, and learned spatial embeddings (SERL; trained anew here)."""
    keypoints = "keypoints"
    """Convolutions of 3 x 3, and of every channel of the last the place where it is largest."""
    vit = "vit"
    """Convolutions of 3 x 3, and one layer of attention between the places of the last."""
    pretrained = "pretrained"
    """A vision model with weights from a folder, and learned spatial embeddings (pretrained.py)."""


@dataclass(kw_only=True)
class ImageConfig:
    """Images that a learner sees, and how it learns from them (docs/vision.md)."""

    encoder: ImageEncoderKind = ImageEncoderKind.none
    """none, conv, resnet, keypoints, vit or pretrained."""
    cameras: list[str] = field(default_factory=list[str])
    """Names of cameras, without `image/`; empty takes all that the environment has."""
    channels: list[int] = field(default_factory=lambda: [32, 32, 32, 32])
    """Channels of every convolution, or of every block of a resnet."""
    strides: list[int] = field(default_factory=lambda: [2, 1, 1, 1])
    """Steps of every convolution [pixels]; DrQ-v2: 2, 1, 1, 1. Larger ones are for CPUs."""
    weights: str = ""
    """Folder of the model of encoder=pretrained: config.json and model.safetensors of transformers;
    channels and strides are its own then. It must stay where it is while runs use it."""
    frozen: bool = True
    """With encoder=pretrained: the model stays as it is, and its embeddings are trained alone."""
    features: int = 50
    """Entries that the trunk leaves of every camera."""
    shift: int = 4
    """Sampled frames are moved by up to so many pixels in both directions, drawn anew for every
    transition, edges repeated; DrQ-v2: 4 at 84 pixels. 0 leaves them."""
    privileged_critic: bool = False
    """The critics see the group `critic` and no images, so that the actor trains the encoder; else
    they see what the actor sees, and train it (the actor's gradient stops before it)."""

    def __post_init__(self) -> None:
        if not self.channels or min(self.channels) < 1 or len(self.channels) != len(self.strides):
            raise ConfigError(
                "learner.images needs as many strides as channels, at least one of each and none "
                f"below 1, got channels {self.channels} and strides {self.strides}"
            )
        for name, lowest in (("features", 1), ("shift", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(
                    f"learner.images.{name} must be at least {lowest}, got {getattr(self, name)}"
                )
        if min(self.strides) < 1:
            raise ConfigError(f"learner.images.strides must be at least 1, got {self.strides}")
        if self.encoder is ImageEncoderKind.vit and self.channels[-1] % _ATTENTION_HEADS:
            raise ConfigError(
                f"learner.images.encoder=vit has {_ATTENTION_HEADS} heads: expected a multiple of "
                f"it as the last of its channels, got {self.channels}"
            )
        if self.weights and self.encoder is not ImageEncoderKind.pretrained:
            raise ConfigError(
                f"learner.images.weights={self.weights} is read by encoder=pretrained, got "
                f"encoder={self.encoder.value}"
            )
        if self.encoder is ImageEncoderKind.resnet and any(c % _GROUPS for c in self.channels):
            raise ConfigError(
                f"learner.images.encoder=resnet normalises {_GROUPS} groups of channels: expected "
                f"multiples of {_GROUPS}, got {self.channels}"
            )

    def groups(self, spec: EnvSpec) -> tuple[str, ...]:
        """Observation groups that are read.

        Raises:
            ConfigError: The environment has none, or not those that are named.
        """
        if self.encoder is ImageEncoderKind.none:
            return ()
        known = [name for name in spec.groups if name.startswith(IMAGE_PREFIX)]
        if not known:
            raise ConfigError(
                f"learner.images.encoder={self.encoder.value} needs a camera, and this environment "
                f"has none (groups: {', '.join(spec.groups)}); name some of the robot or the task "
                "with env.cameras=[...], or set learner.images.encoder=none"
            )
        wanted = [IMAGE_PREFIX + name for name in self.cameras] or known
        for name in wanted:
            if name not in known:
                raise ConfigError(unknown_name("camera of learner.images.cameras", name, known))
        return tuple(wanted)


class ImageEncoder(nn.Module):
    """Encoders of several cameras: replaces images by features, and leaves vectors as they are."""

    def __init__(self, config: ImageConfig, spec: EnvSpec) -> None:
        """Make an encoder for every camera that the config names.

        Raises:
            ConfigError: There is no such camera, or its frames are too small for the strides.
        """
        super().__init__()
        make = {
            ImageEncoderKind.conv: ConvEncoder,
            ImageEncoderKind.resnet: ResNetEncoder,
            ImageEncoderKind.keypoints: KeypointEncoder,
            ImageEncoderKind.vit: ViTEncoder,
            ImageEncoderKind.pretrained: PretrainedEncoder,
        }[config.encoder]
        self.groups = config.groups(spec)
        """Observation groups that are encoded."""
        encoders = {name: make(name, spec.groups[name], config) for name in self.groups}
        self.sizes = {name: encoder.size for name, encoder in encoders.items()}
        """Entries R of every camera's features."""
        self.cameras = nn.ModuleDict(encoders)

    def forward(self, obs: Obs) -> Obs:
        """Groups with features (B, R) in place of stacks (B, S, H, W, C)."""
        return obs | {name: encoder(obs[name]) for name, encoder in self.cameras.items()}


class ConvEncoder(nn.Module):
    """Convolutions and ReLU; features are the last layer's outputs, channels last."""

    def __init__(self, name: str, group: GroupSpec, config: ImageConfig) -> None:
        """Build the layers for the group's frames; their weights are orthogonal."""
        super().__init__()
        layers, height, width = _convolutions(name, group, config)
        self.layers = nn.Sequential(*layers)
        self.size = config.channels[-1] * height * width
        """R."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, S, H, W, C) uint8 -> (B, R)."""
        return _flat(self.layers(_to_float(images)))


class ResNetEncoder(nn.Module):
    """Stem, residual blocks that halve the frame, and learned spatial embeddings.

    An embedding is a weighted sum over all places, with weights of its own for every channel: it
    keeps where something is (Luo et al. 2024, SERL, arXiv:2401.16013). Eight of them per channel,
    as there; a bottleneck follows in the trunk.
    """

    def __init__(self, name: str, group: GroupSpec, config: ImageConfig) -> None:
        """Build the blocks, one for every entry of `channels`."""
        super().__init__()
        stack, height, width, channels = _image_shape(name, group)
        stem = _orthogonal(nn.Conv2d(stack * channels, config.channels[0], _KERNEL, 2, 1))
        self.stem = nn.Sequential(stem, nn.GroupNorm(_GROUPS, config.channels[0]), nn.ReLU())
        blocks = zip(pairwise([config.channels[0], *config.channels]), config.strides, strict=True)
        self.blocks = nn.Sequential(*(_Residual(*sizes, stride) for sizes, stride in blocks))
        for stride in (2, *config.strides):
            height, width = -(-height // stride), -(-width // stride)
        shape = (_EMBEDDINGS, config.channels[-1], height, width)
        self.kernel = nn.Parameter(torch.randn(shape) / math.sqrt(height * width))
        self.size = _EMBEDDINGS * config.channels[-1]
        """R."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, S, H, W, C) uint8 -> (B, R)."""
        x = self.blocks(self.stem(_to_float(images)))  # (B, C, H, W)
        return torch.einsum("bchw,echw->bec", x.float(), self.kernel).flatten(1)


class KeypointEncoder(nn.Module):
    """Convolutions whose last channels each say where in the frame something is.

    A softmax over all places makes weights of a channel, and the feature is the mean place by
    them: two coordinates from -1 to 1, to a fraction of a pixel (Levine et al. 2016,
    arXiv:1504.00702). What something looks like is lost, so this is for where things are.
    """

    def __init__(self, name: str, group: GroupSpec, config: ImageConfig) -> None:
        """Build the layers for the group's frames; their weights are orthogonal."""
        super().__init__()
        layers, height, width = _convolutions(name, group, config)
        self.layers = nn.Sequential(*layers[:-1])  # scores may be negative
        self.sharpness = nn.Parameter(torch.full((config.channels[-1], 1), 5.0))
        """Factor of every channel before its softmax."""
        places = torch.cartesian_prod(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width))
        self.places: Tensor
        self.register_buffer("places", places, persistent=False)  # (H * W, 2)
        self.size = 2 * config.channels[-1]
        """R."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, S, H, W, C) uint8 -> (B, R)."""
        scores = self.layers(_to_float(images)).float().flatten(2)  # (B, C, H * W)
        return ((self.sharpness * scores).softmax(-1) @ self.places).flatten(1)


class ViTEncoder(nn.Module):
    """Convolutions make tokens of places, and one layer of a transformer lets them exchange.

    After the small ViT of IBRL (Hu et al. 2023, arXiv:2311.02198), which ResFiT uses too; its
    convolutions are of 8 x 8 and 3 x 3 pixels, ours are those of the config.
    """

    def __init__(self, name: str, group: GroupSpec, config: ImageConfig) -> None:
        """Build it for the group's frames; tokens are as wide as the last of the channels."""
        super().__init__()
        layers, height, width = _convolutions(name, group, config)
        self.layers = nn.Sequential(*layers[:-1])
        channels = config.channels[-1]
        self.places = nn.Parameter(0.02 * torch.randn(height * width, channels))
        """Learned embedding of every place."""
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.attention_in = nn.Linear(channels, 3 * channels)
        self.attention_out = nn.Linear(channels, channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.size = height * width * channels
        """R."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, S, H, W, C) uint8 -> (B, R)."""
        tokens = self.layers(_to_float(images)).flatten(2).transpose(1, 2) + self.places
        tokens = tokens + self._attended(self.norms[0](tokens))
        tokens = tokens + self.mlp(self.norms[1](tokens))
        return self.norms[2](tokens).float().flatten(1)

    def _attended(self, tokens: Tensor) -> Tensor:
        """(B, P, C) -> (B, P, C)."""
        parts = self.attention_in(tokens).unflatten(
            -1, (3, _ATTENTION_HEADS, -1)
        )  # (B, P, 3, heads, C')
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.attention_out(found.transpose(1, 2).flatten(2))


class PretrainedEncoder(nn.Module):
    """A vision model for each frame of a stack, and learned spatial embeddings of what it found."""

    def __init__(self, name: str, group: GroupSpec, config: ImageConfig) -> None:
        """Read the model, and see how much it finds in the group's frames."""
        super().__init__()
        stack, height, width, channels = _image_shape(name, group)
        if channels not in (1, 3):
            raise ConfigError(
                f"learner.images.encoder=pretrained reads frames of 1 or 3 channels, and those of "
                f"'{name}' have {channels}"
            )
        self.model = PretrainedModel(config.weights, frozen=config.frozen)
        with torch.no_grad():
            _, found, places = self.model(torch.zeros(1, 3, height, width)).shape
        self.kernel = nn.Parameter(torch.randn(_EMBEDDINGS, found, places) / math.sqrt(places))
        self.size = stack * _EMBEDDINGS * found
        """R."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, S, H, W, C) uint8 -> (B, R)."""
        frames = images.flatten(0, 1).permute(0, 3, 1, 2).float().mul(1 / 255)
        found = self.model(frames.expand(-1, 3, -1, -1)).float()  # (B * S, C, P)
        embedded = torch.einsum("bcp,ecp->bec", found, self.kernel)
        return embedded.unflatten(0, images.shape[:2]).flatten(1)


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, outputs, _KERNEL, stride, 1, bias=False),
            nn.GroupNorm(_GROUPS, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, _KERNEL, 1, 1, bias=False),
            nn.GroupNorm(_GROUPS, outputs),
        )
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.branch(x) + self.skip(x))


class ImageTrunk(nn.Module):
    """Linear layer, layer norm and tanh for the features of every camera."""

    def __init__(self, sizes: Mapping[str, int], features: int) -> None:
        """Make them.

        Args:
            sizes: Entries of the features, by observation group.
            features: Entries that are left of each.
        """
        super().__init__()
        self.groups = tuple(sizes)
        """Observation groups that are read."""
        self.size = features * len(sizes)
        """Entries of the output."""
        self.cameras = nn.ModuleDict({
            name: nn.Sequential(
                _orthogonal(nn.Linear(size, features), gain=1.0), nn.LayerNorm(features), nn.Tanh()
            )
            for name, size in sizes.items()
        })  # fmt: skip

    def forward(self, obs: Obs) -> Tensor:
        """Features (B, R) of every camera -> (B, features of all), float32."""
        return torch.cat([trunk(obs[name]).float() for name, trunk in self.cameras.items()], -1)


class ImagePolicy(nn.Module):
    """Encoder and actor: the policy that reads images."""

    def __init__(self, encoder: ImageEncoder, actor: nn.Module, groups: Sequence[str]) -> None:
        """Join them; the groups are the actor's."""
        super().__init__()
        self.encoder, self.actor = encoder, actor
        self.groups = tuple(groups)
        """Observation groups that are seen."""

    def forward(self, obs: Obs) -> Tensor:
        """Action, (N, A), in [-1, 1]."""
        return self.actor(self.encoder(obs))


class SeeingNetwork(nn.Module):
    """A network that reads the group `actor`, behind an encoder whose features go beside it.

    The network itself, `inner`, sees the normalised vectors and the features as one group `actor`,
    which `seen` makes: so any network of vectors learns from images.
    """

    def __init__(
        self, encoder: ImageEncoder, trunk: ImageTrunk, normalizer: nn.Module, inner: nn.Module
    ) -> None:
        """Join them; `inner` has no normaliser of its own."""
        super().__init__()
        self.encoder, self.trunk, self.normalizer, self.inner = encoder, trunk, normalizer, inner
        self.groups = ("actor", *encoder.groups)
        """Observation groups that are seen."""

    def forward(self, obs: Obs) -> Tensor:
        """Output of the network."""
        return self.inner(self.seen(obs))

    def seen(self, obs: Obs) -> Obs:
        """Input of `inner`."""
        features = self.trunk(self.encoder({name: obs[name] for name in self.encoder.groups}))
        return {"actor": torch.cat([self.normalizer(obs["actor"]), features], dim=-1)}

    def update_statistics(self, obs: Obs) -> None:
        """Take the group `actor`, (N, D), into the normaliser."""
        self.normalizer.update(obs["actor"])  # pyright: ignore[reportCallIssue]

    def constrain(self) -> None:
        """Bring constrained weights back to their norm after a step of the optimiser."""
        self.inner.constrain()  # pyright: ignore[reportCallIssue]


def _convolutions(
    name: str, group: GroupSpec, config: ImageConfig
) -> tuple[list[nn.Module], int, int]:
    """Convolutions without padding, a ReLU after each; height and width of what they leave."""
    stack, height, width, channels = _image_shape(name, group)
    layers: list[nn.Module] = []
    for (inputs, outputs), stride in zip(
        pairwise([stack * channels, *config.channels]), config.strides, strict=True
    ):
        if min(height, width) < _KERNEL:
            raise ConfigError(
                f"learner.images.strides={config.strides}: frames of '{name}', "
                f"{group.shape[1]} x {group.shape[2]} pixels, are too small for so many "
                "convolutions; choose fewer or smaller strides, or larger frames"
            )
        height, width = ((side - _KERNEL) // stride + 1 for side in (height, width))
        layers += [_orthogonal(nn.Conv2d(inputs, outputs, _KERNEL, stride)), nn.ReLU()]
    return layers, height, width


def _image_shape(name: str, group: GroupSpec) -> tuple[int, int, int, int]:
    if len(group.shape) != 4 or group.dtype is not torch.uint8:
        raise ConfigError(
            f"observation group '{name}': expected stacked uint8 frames (S, H, W, C), got "
            f"{group.shape} of {group.dtype}"
        )
    stack, height, width, channels = group.shape
    return stack, height, width, channels


def _to_float(images: Tensor) -> Tensor:
    """(B, S, H, W, C) -> (B, S * C, H, W) in [-0.5, 0.5], channels last in memory."""
    rows = images.permute(0, 2, 3, 1, 4).flatten(3)
    return rows.float().mul_(1 / 255).sub_(0.5).permute(0, 3, 1, 2)


def _flat(x: Tensor) -> Tensor:
    """(B, C, H, W), channels last in memory -> (B, H * W * C) without a copy, in float32."""
    return x.permute(0, 2, 3, 1).flatten(1).float()


def _orthogonal(layer: nn.Conv2d | nn.Linear, gain: float = math.sqrt(2)) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer
