"""Demonstrations in memory: chunks of actions that followed an observation.

Whole episodes are held out for validation: neighbouring steps of one episode are nearly the same,
and a network that knows the one would seem to foresee the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from robot_rl.buffers.returns import check_rows
from robot_rl.core.env import EnvSpec, Obs
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.meaning import meaning_of_groups
from robot_rl.core.observation import IMAGE_PREFIX
from robot_rl.core.seeding import derive_seed
from robot_rl.core.transition import Batch
from robot_rl.datasets.episode import Episode
from robot_rl.datasets.reader import EpisodeDataset
from robot_rl.training.config import DemonstrationConfig
from robot_rl.training.prior_episodes import check_cameras, row_description


class Chunks:
    """All steps of some episodes, and the actions that followed each of them."""

    def __init__(
        self, episodes: Sequence[Episode], groups: Sequence[str], length: int,
        device: torch.device, stacks: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        """Lay episodes, with a valid step in all, one behind another; chunks have H actions.

        Args:
            groups: Vectors among the observations.
            stacks: Cameras among them, and how many frames are in an observation.
        """
        self.obs: Obs = {
            name: _joined([one.obs[name][:-1] for one in episodes]).to(device) for name in groups
        }
        """Vectors of all steps."""
        self._stacks = dict(stacks or {})
        self._frames = {
            name: _joined([one.images[name][:-1] for one in episodes]).to(device)
            for name in self._stacks
        }
        self._action = _joined([one.action for one in episodes]).to(device)
        valid = _joined([one.valid for one in episodes])
        counts = torch.tensor([one.num_steps for one in episodes])
        self._last = (counts.cumsum(0) - 1).repeat_interleave(counts).to(device)
        self._begin = (counts.cumsum(0) - counts).repeat_interleave(counts).to(device)
        self._ahead = torch.arange(length, device=device)
        self._valid = valid.to(device)
        self._starts = valid.nonzero()[:, 0].to(device)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def starts(self) -> Obs:
        """Vectors of all steps that chunks begin at."""
        return {name: group[self._starts] for name, group in self.obs.items()}

    def take(self, which: Tensor) -> Batch:
        """Chunks by number, (B,); `extra` has `chunk` (B, H, A) and `valid` (B, H).

        Beyond the end of its episode a chunk repeats the last action, and is not valid; neither is
        what follows a step that must not be learned from.
        """
        first = self._starts[which]
        wanted, last = first[:, None] + self._ahead, self._last[first][:, None]
        steps = wanted.minimum(last)
        valid = ((wanted <= last) & self._valid[steps]).cumprod(1).bool()
        action = self._action[first]
        obs = {name: group[first] for name, group in self.obs.items()}
        obs |= {IMAGE_PREFIX + name: self._stacked(name, first) for name in self._stacks}
        zeros = torch.zeros_like(action[:, 0])
        return Batch(
            obs=obs, action=action, reward=zeros, discount=zeros, next_obs=obs,
            weight=torch.ones_like(zeros),
            extra={"chunk": self._action[steps], "valid": valid},
        )  # fmt: skip

    def _stacked(self, camera: str, steps: Tensor) -> Tensor:
        """Last frames of a camera at some steps, (B, S, H, W, C), oldest first.

        Before its episode's first frame there is that frame, as the environment has it.
        """
        back = torch.arange(self._stacks[camera] - 1, -1, -1, device=steps.device)
        which = (steps[:, None] - back).maximum(self._begin[steps][:, None])
        return self._frames[camera][which]


class Demonstrations:
    """The chunks to learn from and those held out, with a random stream of their own."""

    def __init__(
        self, path: Path, digest: str, learned: Chunks, held_out: Chunks | None, sentence: str,
        seed: int,
    ) -> None:  # fmt: skip
        """Use `read_demonstrations`."""
        self.path, self.digest, self.sentence = path, digest, sentence
        self.learned, self.held_out = learned, held_out
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "demonstrations"))

    def draw(self, count: int) -> Batch:
        """Chunks to learn from, uniformly."""
        which = torch.randint(len(self.learned), (count,), generator=self._generator)
        return self.learned.take(which.to(self.learned.obs["actor"].device))

    def state_dict(self) -> dict[str, object]:
        """Digest of the demonstrations, and their random stream."""
        return {"digest": self.digest, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor | str]) -> None:
        """Go on drawing from the same demonstrations.

        Raises:
            SpecMismatchError: They are others than the run began with.
        """
        if state["digest"] != self.digest:
            raise SpecMismatchError(
                f"the demonstrations in {self.path} are not those that the run began with (they "
                f"had the digest {str(state['digest'])[:12]}, these have {self.digest[:12]}): "
                "name a copy of the old ones with training.demonstrations.data=..., or begin a "
                "new run"
            )
        generator = state["generator"]
        assert isinstance(generator, Tensor)
        self._generator.set_state(generator)


def read_demonstrations(
    folder: Path, config: DemonstrationConfig, spec: EnvSpec, groups: Sequence[str], *,
    chunk_length: int, seed: int,
) -> Demonstrations:  # fmt: skip
    """Read a data set and hold some of its episodes out.

    Args:
        chunk_length: H.
        seed: Chooses the episodes held out; seeds the draws.

    Raises:
        ConfigError: Too few episodes are left.
        DatasetError: It is damaged, or there is none.
        SpecMismatchError: It is of another robot, time step, observation or action.
    """
    cameras = [name for name in groups if name.startswith(IMAGE_PREFIX)]
    groups = [name for name in groups if name not in cameras]
    stacks = {name.removeprefix(IMAGE_PREFIX): spec.groups[name].stack for name in cameras}
    dataset = EpisodeDataset(folder, images=bool(stacks))
    check_cameras(folder, dataset.spec, spec, cameras)
    columns = [[f"obs/{name}", spec.groups[name].shape[0]] for name in groups]
    robot = None if spec.robot is None else spec.robot.identity()
    own = {
        "columns": [*columns, ["action", spec.action_size]], "reward_names": [],
        "control_dt": spec.control_dt, "robot": robot,
        "meaning": meaning_of_groups(spec.meaning, groups),
    }  # fmt: skip
    check_rows({**row_description(dataset.spec), "reward_names": []}, own, str(folder))
    if config.episodes > len(dataset):
        raise ConfigError(
            f"training.demonstrations.episodes={config.episodes} were asked for; {folder} has "
            f"{len(dataset)}"
        )
    found = [
        replace(
            one,
            obs={name: one.obs[name] for name in groups},
            reward_terms=None,
            states={},
            images={name: one.images[name] for name in stacks},
        )
        for one in dataset.episodes(range(config.episodes or len(dataset)))
    ]  # what is not learned from is not held
    kept = [one for one in found if one.valid.any()]
    if config.successes_only:
        kept = [one for one in kept if one.success[-1]]
    held = 0
    if config.validation_share > 0:
        held = max(1, round(config.validation_share * len(kept)))
    if len(kept) <= held:
        raise ConfigError(
            f"{folder} has {len(found)} episodes, {len(kept)} of them to learn from, and {held} "
            "are held out; expected at least one more: collect more, or set "
            "training.demonstrations.validation_share or successes_only otherwise"
        )
    order = np.random.default_rng(derive_seed(seed, "held out")).permutation(len(kept))
    learned, out = [kept[i] for i in sorted(order[held:])], [kept[i] for i in sorted(order[:held])]
    succeeded = sum(bool(one.success[-1]) for one in kept)
    chunks = Chunks(learned, groups, chunk_length, spec.device, stacks)
    return Demonstrations(
        folder, dataset.digest, chunks,
        Chunks(out, groups, chunk_length, spec.device, stacks) if out else None,
        f"demonstrations: {len(kept)} episodes, {succeeded} of them successful, from {folder}; "
        f"{len(chunks):,} steps to learn from, {held} episodes held out",
        seed,
    )  # fmt: skip


def _joined(arrays: Sequence[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.concatenate(arrays))
