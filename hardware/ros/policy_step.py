"""One control period of a policy: how a command comes about, and a message that says from what.

Topic `policy/step`, std_msgs/Float64MultiArray, reliable: numbers in a row, `layout.dim` names
the pieces and gives their lengths.

| piece | length | what |
|---|---|---|
| `step` | 1 | count of the policy's commands since it started |
| `starts` | 1 | 1 where an episode began: histories were filled anew |
| `stamp/<topic>` | 2 | time of the message that was used, seconds and nanoseconds |
| `goal/<name>` | width | the goal in use |
| `observation/<term>` | width x history | what the network saw |
| `action` | A | what it said, in [-1, 1] |

With the messages of these stamps a recording holds all that is needed to do the same again.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.ros.camera_inputs import CameraInputs
from hardware.ros.robot_inputs import RobotInputs
from policies.runner import PolicyRunner, PolicySpec
from robot_rl.core.errors import SpecMismatchError
from robot_rl.core.robot_command import RobotCommand

STEP_TOPIC = "policy/step"
STEP_TYPE = ("std_msgs", "Float64MultiArray")
_SECOND = 1_000_000_000


def decide(
    runner: PolicyRunner, inputs: RobotInputs, *, now: int, starts: bool,
    cameras: CameraInputs | None = None,
) -> RobotCommand:  # fmt: skip
    """From what has come to a command; on the robot and in a replay.

    Args:
        now: Time, for the ages of measurements [ns].
        cameras: Those that the policy sees; None for none.

    Raises:
        StaleStateError: Something never came or is too old; the policy was not asked.
        NonFiniteError: An observation or the action is not finite.
    """
    state = inputs.robot_state(now)
    pictures = cameras.pictures(inputs.state) if cameras is not None else None
    if starts:
        runner.reset()
    goal = {name: value.astype(np.float32) for name, value in inputs.goal.items()}
    sensed = {name: value.astype(np.float32) for name, value in inputs.sensed.items()}
    return runner.act(state, goal, sensed, pictures)


@dataclass(frozen=True, kw_only=True)
class PolicyStep:
    """Inputs and decision of a policy in one control period."""

    number: int
    starts: bool
    """First step of an episode."""
    stamps: Mapping[str, int]
    """Measurement time of what was used of each topic [ns]."""
    goal: Mapping[str, np.ndarray]
    """(1, width)."""
    observation: np.ndarray
    """(D,)."""
    action: np.ndarray
    """(A,), in [-1, 1]."""

    @classmethod
    def of(
        cls, number: int, starts: bool, inputs: RobotInputs, runner: PolicyRunner
    ) -> "PolicyStep":
        """The step that a runner and its inputs have just made."""
        return cls(
            number=number, starts=starts, stamps=inputs.stamps, goal=inputs.goal,
            observation=runner.last_observation[0], action=runner.last_action[0],
        )  # fmt: skip


class StepMessages:
    """Steps of one policy as messages."""

    def __init__(self, spec: PolicySpec, dimension: Callable[[], Any]) -> None:
        self._dimension = dimension
        self._terms = [
            (f"observation/{config.term}", width * config.history)
            for config, width in zip(spec.terms, spec.widths, strict=True)
        ]
        self._layout: list[Any] = []
        self._topics: list[str] = []

    def pack(self, step: PolicyStep, message: Any) -> None:
        """Write a step into an empty message."""
        if self._topics != [*step.stamps]:
            self._topics = [*step.stamps]
            self._layout = [self._described(*piece) for piece in self._pieces(step)]
        message.layout.dim = self._layout
        stamps = [part for stamp in step.stamps.values() for part in divmod(stamp, _SECOND)]
        goals = [value.ravel() for value in step.goal.values()]
        parts = [[step.number, float(step.starts)], stamps, *goals, step.observation, step.action]
        message.data = np.concatenate(parts, dtype=np.float64).tolist()

    def _pieces(self, step: PolicyStep) -> Iterator[tuple[str, int]]:
        yield from (("step", 1), ("starts", 1))
        yield from ((f"stamp/{topic}", 2) for topic in step.stamps)
        yield from ((f"goal/{name}", value.size) for name, value in step.goal.items())
        yield from self._terms
        yield "action", step.action.size

    def _described(self, label: str, size: int) -> Any:
        dimension = self._dimension()
        dimension.label, dimension.size, dimension.stride = label, size, size
        return dimension


def unpack_step(message: Any) -> PolicyStep:
    """A message's step.

    Raises:
        SpecMismatchError: It is none.
    """
    values, start = np.asarray(message.data, dtype=np.float64), 0
    scalars: dict[str, float] = {}
    stamps: dict[str, int] = {}
    goal: dict[str, np.ndarray] = {}
    observation: list[np.ndarray] = []
    action: list[np.ndarray] = []
    for piece in message.layout.dim:
        kind, _, name = piece.label.partition("/")
        part = values[start : (start := start + piece.size)]
        match kind:
            case "step" | "starts" if part.size == 1:
                scalars[kind] = float(part[0])
            case "stamp" if part.size == 2:
                stamps[name] = round(part[0]) * _SECOND + round(part[1])
            case "goal":
                goal[name] = part[np.newaxis]
            case "observation":
                observation.append(part)
            case "action":
                action.append(part)
            case _:
                raise _no_step(f"an unknown piece '{piece.label}' of {part.size} numbers")
    if start != values.size or not (stamps and observation and action and len(scalars) == 2):
        raise _no_step(f"{values.size} numbers in {len(message.layout.dim)} pieces")
    return PolicyStep(
        number=round(scalars["step"]), starts=bool(scalars["starts"]), stamps=stamps, goal=goal,
        observation=np.concatenate(observation), action=np.concatenate(action),
    )  # fmt: skip


def _no_step(got: str) -> SpecMismatchError:
    return SpecMismatchError(
        f"a message on {STEP_TOPIC} has {got}; expected what hardware/ros/policy_step.py "
        "describes: was it recorded by another version of robot_rl?"
    )
