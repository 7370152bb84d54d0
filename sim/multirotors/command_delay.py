"""Commands on their way to a flight controller: each world obeys what was said some steps ago."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.robot_command import BodyRateCommand


class CommandDelay:
    """Body rates and thrusts of N worlds, kept for as many steps as the longest delay has."""

    def __init__(self, num_worlds: int, *, longest: int, device: torch.device) -> None:
        """Hold zeros.

        Args:
            num_worlds: N.
            longest: Delay that is possible [steps].
            device: Where the worlds live.
        """
        self._kept = torch.zeros(longest + 1, num_worlds, 4, device=device)  # rates, thrust
        self._worlds = torch.arange(num_worlds, device=device)
        self._newest = 0

    def begin(self, rows: EnvSelection, thrust: float) -> None:
        """No rates and some thrust, [0, 1], were said to the picked worlds up to now."""
        for kept in self._kept:
            rows.put(kept, 0.0)
            rows.put(kept[:, 3], thrust)

    def pass_on(self, command: BodyRateCommand, delay: Tensor) -> BodyRateCommand:
        """Take what is said in this step; returns what each world hears in it.

        Args:
            command: For all worlds.
            delay: Of each world, (N,), [steps], at most the longest.
        """
        depth = len(self._kept)
        self._newest = (self._newest + 1) % depth
        self._kept[self._newest, :, :3] = command.rates_b
        self._kept[self._newest, :, 3:] = command.thrust
        heard = self._kept[(self._newest - delay.long()) % depth, self._worlds]
        return BodyRateCommand(rates_b=heard[:, :3], thrust=heard[:, 3:])

    def state_dict(self) -> dict[str, Any]:
        """What is on its way."""
        return {"kept": self._kept.clone(), "newest": self._newest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore `state_dict`."""
        self._kept.copy_(state["kept"])
        self._newest = state["newest"]
