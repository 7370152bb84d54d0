"""The same observations several times, for several actions at each."""

from robot_rl.core.env import Obs


def repeated(obs: Obs, count: int) -> Obs:
    """All rows, groups (B, ...), `count` times one after another: (count * B, ...)."""
    if count == 1:
        return obs
    return {name: group.repeat(count, *[1] * (group.ndim - 1)) for name, group in obs.items()}
