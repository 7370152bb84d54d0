"""A Gymnasium environment whose every observation can be worked out by hand."""

from typing import Any

import gymnasium
import numpy as np

BOUND, LIMIT = 1.2, 9


class Drift(gymnasium.Env[Any, np.ndarray]):
    """A point that moves by its action and ends beyond `bound`; its clock ends it otherwise.

    The observation is (position x, position y, steps since the start); actions lie in [-0.5, 2].
    """

    metadata = {"render_modes": [], "render_fps": 20}  # noqa: RUF012 - Gymnasium's form

    def __init__(self, *, bound: float = BOUND, limit: int = LIMIT, kind: str = "box") -> None:
        """Set bounds; `kind` is the form of the observation: box, dict or goal."""
        vector = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
        clock = gymnasium.spaces.Box(0, np.inf, (1,), np.float64)
        spaces: dict[str, gymnasium.Space[Any]] = {
            "box": gymnasium.spaces.Box(-np.inf, np.inf, (3,)),
            "dict": gymnasium.spaces.Dict(
                {"place": vector, "inner": gymnasium.spaces.Dict({"clock": clock})}
            ),
            "goal": gymnasium.spaces.Dict(
                {"observation": vector, "achieved_goal": clock, "desired_goal": clock}
            ),
        }
        self.observation_space = spaces[kind]
        self.action_space = gymnasium.spaces.Box(-0.5, 2.0, (2,), np.float32)
        self._bound, self._limit, self._kind = bound, limit, kind
        self._place, self._age = np.zeros(2), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._age = self.np_random.uniform(-0.5, 0.5, 2), 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        # The middle of the bounds is standing still.
        self._place = self._place + 0.4 * (action.astype(np.float64) - 0.75) / 1.25
        self._age += 1
        terminated = bool(np.abs(self._place).max() > self._bound)
        # Both may be set in the last step: `terminated` must win.
        truncated = self._age >= self._limit
        near = bool(np.abs(self._place).max() < 0.8)
        info = {"is_success": near, "distance": float(np.abs(self._place).max())}
        return self._observe(), float(self._place.sum()), terminated, truncated, info

    def _observe(self) -> Any:
        place, clock = self._place.astype(np.float32), np.array([self._age], np.float64)
        if self._kind == "dict":
            return {"place": place, "inner": {"clock": clock}}
        if self._kind == "goal":
            return {"observation": place, "achieved_goal": clock, "desired_goal": 0 * clock}
        return np.concatenate([place, clock.astype(np.float32)])


gymnasium.register("robot_rl_tests/Drift-v0", f"{__name__}:Drift")
