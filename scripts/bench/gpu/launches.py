"""Operations of an update that a GPU would be told of one by one, counted without a GPU.

Every operation of torch that computes something is at least one kernel; views, sizes and new memory
are none. Operations on lists of tensors count once: on a GPU they are a few launches, whatever the
length of the list. So the count is a lower bound of the launches that a graph saves.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from configs.compose import compose
from robot_rl.cli.components import make_learner
from robot_rl.core.transition import Batch
from scripts.bench.updates import SIZES, env_spec

PRESETS = ("sac", "td3", "fast_sac", "flash_sac", "rlpd", "mentor")
_WARM_UP = 4
_NO_KERNEL = ("empty", "detach", "alias", "view", "_unsafe_view", "t", "transpose", "permute",
              "expand", "slice", "select", "unsqueeze", "squeeze", "split", "unbind", "as_strided",
              "reshape", "new_empty", "empty_like", "_reshape_alias", "lift_fresh",
              "split_with_sizes", "is_same_size")  # fmt: skip


class _Counting(TorchDispatchMode):
    """Context that counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name not in _NO_KERNEL:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def count_launches(presets: Sequence[str] = PRESETS) -> Iterator[tuple[str, dict[str, int]]]:
    """Operations of an update of each preset, with a step of the actor and without one.

    Yields:
        The preset, and the counts: `critics` and `actor too`, absent where the actor always steps.
    """
    size = SIZES[0]
    spec = env_spec(size)
    for preset in presets:
        config = compose([f"learner={preset}", "learner.compile=false", "device=cpu"]).config
        learner = make_learner(config, spec)
        learner.begin(torch.ones(spec.num_envs, dtype=torch.bool))
        found: dict[str, int] = {}
        for update in range(_WARM_UP + 8 * getattr(learner, "actor_interval", 1)):
            batch = _batch(spec, learner.samples_per_update)
            with _Counting() as counting:
                _, _ = learner.update(batch)
            if update >= _WARM_UP:
                total = sum(counting.counts.values())
                for name, better in (("critics", min), ("actor too", max)):
                    found[name] = better(found.get(name, total), total)
        if found["critics"] == found["actor too"]:
            del found["critics"]
        yield preset, found


def _batch(spec: Any, rows: int) -> Batch:
    obs = {name: torch.randn(rows, *group.shape) for name, group in spec.groups.items()}
    return Batch(
        obs=obs, action=torch.rand(rows, spec.action_size) * 2 - 1, reward=torch.randn(rows),
        discount=torch.full((rows,), 0.99), next_obs=obs, weight=torch.ones(rows),
        extra={"index": torch.arange(rows)},
    )  # fmt: skip
