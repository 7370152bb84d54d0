"""Success classifier: an ensemble of small networks over what a robot observes.

Each member answers for every stage by itself. Their mean is the probability of success, made honest
by a temperature and an offset (Guo et al. 2017, arXiv:1706.04599; Platt 1999); their spread says
where they do not know. A frame counts as a success where the mean reaches the threshold and the
members agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from policies.networks.images import ImageConfig, ImageEncoder, ImageEncoderKind, ImageTrunk
from policies.networks.inputs import RunningNormalizer
from policies.networks.mlp import Activation, mlp
from robot_rl.core.env import EnvSpec, GroupSpec, Obs
from robot_rl.core.errors import ConfigError
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.datasets.episode import Episode
from robot_rl.learners.images import random_shift


@dataclass(kw_only=True)
class ClassifierConfig:
    """Shape of a success classifier, and its decision."""

    groups: list[str] = field(default_factory=lambda: ["actor"])
    """Vectors that are read; of a robot only `actor` is there. Empty for images alone."""
    images: ImageConfig = field(default_factory=ImageConfig)
    """Cameras that are read, and the encoder of each member."""
    members: int = 3
    """Networks E."""
    hidden: list[int] = field(default_factory=lambda: [64, 64])
    """Widths of the hidden layers."""
    precision: float = 0.98
    """Precision on the validation episodes that the threshold is chosen for."""
    hold: int = 3
    """Frames k that must be successes ..."""
    hold_window: int = 4
    """... of the last m, before success is said."""
    max_disagreement: float = 0.25
    """Standard deviation of the members' probabilities from which on a frame is uncertain: it is no
    success, and a person is asked."""

    def __post_init__(self) -> None:
        if not self.groups and self.images.encoder is ImageEncoderKind.none:
            raise ConfigError(
                "a success classifier needs something to read: groups=[actor], or "
                "images.encoder=conv with images.cameras=[...]"
            )
        if self.images.encoder is not ImageEncoderKind.none and not self.images.cameras:
            raise ConfigError("images.cameras is empty; name the cameras that are read")
        if not 1 <= self.members <= 32:
            raise ConfigError(f"members must lie in [1, 32], got {self.members}")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"hidden needs widths of at least 1, got {self.hidden}")
        if not 0 < self.precision <= 1 or not 0 < self.max_disagreement <= 0.5:
            raise ConfigError(
                "precision must lie in (0, 1] and max_disagreement in (0, 0.5], got "
                f"{self.precision} and {self.max_disagreement}"
            )
        if not 1 <= self.hold <= self.hold_window <= 1000:
            raise ConfigError(
                "hold must lie in [1, hold_window] and hold_window in [hold, 1000], got "
                f"{self.hold} and {self.hold_window}"
            )

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras that are read."""
        return () if self.images.encoder is ImageEncoderKind.none else tuple(self.images.cameras)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Answer of a classifier about N frames."""

    probability: Tensor
    """(N, S), of each stage."""
    disagreement: Tensor
    """(N, S), standard deviation over the members."""
    reached: Tensor
    """(N, S) bool: the stage and all stages before it are reached."""
    uncertain: Tensor
    """(N,) bool: the members disagree about some stage."""


class SuccessClassifier(nn.Module):
    """Members, normaliser, calibration and thresholds."""

    temperature: Tensor
    offset: Tensor
    threshold: Tensor

    def __init__(
        self, config: ClassifierConfig, shapes: Mapping[str, Sequence[int]], stages: int, seed: int
    ) -> None:  # fmt: skip
        """Draw the weights.

        Args:
            config: Shape.
            shapes: Groups that are read: (D,) of vectors, (1, H, W, C) of `image/<camera>`.
            stages: S.
            seed: Of the weights.

        Raises:
            ConfigError: Frames are too small for the encoder.
        """
        super().__init__()
        self.config = config
        self.vectors = tuple(config.groups)
        """Vectors that are read."""
        self.images = tuple(IMAGE_PREFIX + name for name in config.cameras)
        """Images that are read."""
        self.groups = (*self.vectors, *self.images)
        """Observation groups that are read."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            size = sum(shapes[name][0] for name in self.vectors)
            self.normalizer = RunningNormalizer(size) if size else None
            self.encoders = nn.ModuleList()
            self.trunks = nn.ModuleList()
            seen = 0
            for _ in range(config.members if self.images else 0):
                encoder = ImageEncoder(config.images, _image_spec(shapes, self.images))
                trunk = ImageTrunk(encoder.sizes, config.images.features)
                self.encoders.append(encoder)
                self.trunks.append(trunk)
                seen = trunk.size
            self.network = mlp(
                [size + seen, *config.hidden, stages], Activation.relu, layer_norm=True,
                members=config.members,
            )  # fmt: skip
        self.register_buffer("temperature", torch.ones(stages))
        self.register_buffer("offset", torch.zeros(stages))
        self.register_buffer("threshold", torch.full((stages,), 0.5))

    @property
    def stages(self) -> int:
        """S."""
        return len(self.threshold)

    def update_statistics(self, obs: Obs) -> None:
        """Take vectors, (B, D), into the normaliser."""
        if self.normalizer is not None:
            self.normalizer.update(self._read(obs))

    def logits(self, obs: Obs) -> Tensor:
        """Answers before calibration, (E, B, S).

        Args:
            obs: Groups (B, ...), or of vectors (E, B, D), other rows for every member.
        """
        parts: list[Tensor] = []
        if self.normalizer is not None:
            vectors = self.normalizer(self._read(obs))
            parts.append(vectors.expand(self.config.members, *vectors.shape[-2:]))
        if self.images:
            parts.append(torch.stack([
                trunk(encoder({name: self._images_of(obs, name, i) for name in self.images}))
                for i, (encoder, trunk) in enumerate(zip(self.encoders, self.trunks, strict=True))
            ]))  # fmt: skip
        return self.network(torch.cat(parts, dim=-1))

    def probabilities(self, obs: Obs) -> Tensor:
        """Calibrated probabilities of each member, (E, B, S)."""
        return self.calibrated(self.logits(obs))

    def calibrated(self, logits: Tensor) -> Tensor:
        """Probabilities of logits, (E, B, S)."""
        return torch.sigmoid(logits / self.temperature + self.offset)

    @torch.no_grad()
    def judge(self, obs: Obs) -> Judgement:
        """Decide about N frames, groups (N, ...)."""
        return self.decide(self.probabilities(self.read(obs)))

    def decide(self, members: Tensor) -> Judgement:
        """Decision of the members' probabilities, (E, N, S)."""
        mean, spread = members.mean(0), members.std(0, correction=0)
        unsure = spread > self.config.max_disagreement
        reached = (mean >= self.threshold) & ~unsure
        return Judgement(
            probability=mean, disagreement=spread, reached=reached.cummin(-1).values,
            uncertain=unsure.any(-1),
        )  # fmt: skip

    def read(self, obs: Obs) -> Obs:
        """The groups that are read, of an environment's; the newest frame of stacked images."""
        return {name: obs[name] for name in self.vectors} | {
            name: obs[name][:, -1:] for name in self.images
        }

    def _read(self, obs: Obs) -> Tensor:
        return torch.cat([obs[name] for name in self.vectors], dim=-1)

    def _images_of(self, obs: Obs, name: str, member: int) -> Tensor:
        images = obs[name]
        return images[member] if images.ndim == 6 else images


def member_frames(
    classifier: SuccessClassifier, frames: Obs, rows: Tensor, generator: torch.Generator
) -> Obs:
    """Frames that every member learns from, its images shifted at random, groups (E, B, ...).

    Args:
        classifier: Says what is read.
        frames: Groups (F, ...).
        rows: Places of the frames, (E, B) int64.
        generator: Of the shifts.
    """
    obs = {name: frames[name][rows] for name in classifier.groups}
    shift = classifier.config.images.shift
    for name in classifier.images if shift else ():
        moved = random_shift(obs[name].flatten(0, 1), shift, generator)  # (E B, 1, H, W, C)
        obs[name] = moved.unflatten(0, rows.shape)
    return obs


def episode_obs(episode: Episode, groups: Sequence[str], cameras: Sequence[str]) -> Obs:
    """Frames that the steps of an episode led to, groups (T, D) and images (T, 1, H, W, C)."""
    obs = {name: torch.from_numpy(episode.obs[name][1:]) for name in groups}
    for name in cameras:
        obs[IMAGE_PREFIX + name] = torch.from_numpy(episode.images[name][1:])[:, None]
    return obs


def _image_spec(shapes: Mapping[str, Sequence[int]], names: Sequence[str]) -> EnvSpec:
    """Spec of an environment with these cameras, for the encoder."""
    return EnvSpec(
        num_envs=1, device=torch.device("cpu"), action_size=1, control_dt=1.0,
        groups={n: GroupSpec(shape=tuple(shapes[n]), dtype=torch.uint8) for n in names},
    )  # fmt: skip
