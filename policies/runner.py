"""Runs a trained policy with numpy and onnxruntime: from a measured state to a robot command."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime

from robot_rl.core.action import ActionMap
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.episodic import ChunkQueue, ClockSpec
from robot_rl.core.errors import BundleError, NonFiniteError, ShapeError, SpecMismatchError
from robot_rl.core.observation import ObservationInputs, ObservationMap, RobotState, TermConfig
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import RobotCommand


@dataclass(frozen=True, kw_only=True)
class PolicySpec:
    """Everything around the network: what it sees, what its output means, and how often it runs."""

    robot: RobotSpec
    """The robot that the policy was trained for."""
    control_dt: float
    """Time between two actions [s]."""
    terms: list[TermConfig]
    """Terms of the group `actor`, in order."""
    widths: list[int]
    """Width of one frame of each term."""
    goal_widths: dict[str, int]
    """Goal entries that the task sets, with their widths."""
    sensed_widths: dict[str, int]
    """Further named inputs, with their widths."""
    action_map: ActionMap
    """From actions to commands."""
    initial_action: list[float]
    """Last action at an episode's start, (A,), in [-1, 1]."""
    initial_state: list[float]
    """Recurrent state at an episode's start, (S,); empty where the network has none."""
    chunk_length: int = 1
    """Actions that one run of the network gives."""
    replan_interval: int = 1
    """Actions that are used before the network runs again."""
    ensemble_decay: float | None = None
    """With an ensemble of chunks: how much less a younger plan weighs (`ChunkQueue`)."""
    clocks: dict[str, ClockSpec] = field(default_factory=dict)
    """Goals that run by themselves where nobody sends them."""

    @property
    def observation_size(self) -> int:
        """D: width of the group `actor`."""
        return sum(w * t.history for w, t in zip(self.widths, self.terms, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        layout = [t.to_dict(w) for t, w in zip(self.terms, self.widths, strict=True)]
        return {
            "control_dt": self.control_dt,
            "groups": {"actor": layout},
            "goal_widths": self.goal_widths,
            "sensed_widths": self.sensed_widths,
            "action_map": self.action_map.to_dict(),
            "initial_action": self.initial_action,
            "initial_state": self.initial_state,
            "chunk_length": self.chunk_length,
            "replan_interval": self.replan_interval,
            "ensemble_decay": self.ensemble_decay,
            "clocks": {name: clock.to_dict() for name, clock in self.clocks.items()},
            "robot": self.robot.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PolicySpec":
        """Rebuild from `to_dict`."""
        layout = [dict(term) for term in values["groups"]["actor"]]
        widths = [term.pop("width") for term in layout]
        plain = {name: value for name, value in values.items() if name != "groups"}
        plain["robot"] = RobotSpec.from_dict(values["robot"])
        plain["action_map"] = ActionMap.from_dict(values["action_map"])
        clocks = values.get("clocks", {})  # bundles of before have none
        plain["clocks"] = {name: ClockSpec(**clock) for name, clock in clocks.items()}
        return cls(terms=[TermConfig(**term) for term in layout], widths=widths, **plain)


def open_network(onnx: bytes) -> onnxruntime.InferenceSession:
    """Network in one thread that sleeps between calls instead of spinning on a robot's core."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])


class PolicyRunner:
    """A policy at work: owns the histories, the last action, the recurrent state.

    Serves N robots or worlds in step; one is the ordinary case. `act` is what a control loop calls:
    it never blocks, logs nothing, and allocates only small arrays.
    """

    def __init__(
        self, spec: PolicySpec, network: onnxruntime.InferenceSession, num_robots: int = 1
    ) -> None:
        """Build the observation map and its buffers; episodes start with the first `act`.

        Args:
            network: From `open_network`; may be shared by runners.

        Raises:
            SpecMismatchError: A term is as wide here as it was not when the bundle was written.
            BundleError: Its chunks are not as long as the spec says.
        """
        self.spec = spec
        _check_chunks(spec, network)
        self._network = network
        self._inputs = ObservationInputs(
            state=RobotState(_buffers(num_robots, spec.robot.state_widths)),
            goal=_buffers(num_robots, spec.goal_widths),
            last_action=np.zeros((num_robots, spec.action_map.size), np.float32),
            sensed=_buffers(num_robots, spec.sensed_widths),
        )
        self._map = ObservationMap(spec.terms, self._inputs)
        self._check_widths()
        self._observation = np.zeros((num_robots, self._map.size), np.float32)
        self._state = np.zeros((num_robots, len(spec.initial_state)), np.float32)
        self._starting = np.zeros(num_robots, bool)
        self._queue: ChunkQueue | None = None
        if spec.chunk_length > 1:
            self._queue = ChunkQueue(
                self._inputs.last_action, spec.chunk_length, spec.replan_interval,
                spec.ensemble_decay,
            )  # fmt: skip
        self.reset()

    @property
    def last_observation(self) -> np.ndarray:
        """Observation of the last `act`, (N, D)."""
        return self._observation

    @property
    def last_action(self) -> np.ndarray:
        """Copy of the action accepted last, (N, A), in [-1, 1]."""
        return self._inputs.last_action.copy()

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Start episodes of the masked robots, (N,) bool, or of all: `act` fills the histories."""
        rows = slice(None) if mask is None else mask
        self._starting[rows] = True
        self._inputs.last_action[rows] = self.spec.initial_action
        self._state[rows] = self.spec.initial_state
        if self._queue is not None:
            self._queue.reset(np.ones(len(self._starting), bool) if mask is None else mask)

    def act(
        self,
        state: RobotState,
        goal: Mapping[str, np.ndarray],
        sensed: Mapping[str, np.ndarray] | None = None,
    ) -> RobotCommand:
        """Observe, run the network, and turn its action into a command.

        Real-time: never blocks, allocates only small arrays. Call it once per control period.

        Args:
            state: Every field that the robot's spec declares, each (N, width).
            goal: Every entry that the policy was trained with, each (N, width).
            sensed: Further inputs, each (N, width).

        Raises:
            NonFiniteError: An observation or action is NaN or infinite; `reset` before going on.
            SpecMismatchError: An input is missing.
            ShapeError: An input has another shape.
        """
        _fill("state field", self._inputs.state.fields, state.fields)
        _fill("goal", self._inputs.goal, goal)
        _fill("sensed input", self._inputs.sensed, sensed or {})
        self._observation = self._observe()
        action = self._run_network()
        np.clip(action, -1.0, 1.0, out=self._inputs.last_action)
        return self.spec.action_map.to_command(action)

    def rehearse(self) -> RobotCommand:
        """Command of `act` once more, on the inputs that it had last; nothing is remembered.

        A policy sleeps between its periods, and others use the processor: what ran a moment ago
        runs faster. So call it shortly before the next inputs are due. Real-time.
        """
        self._map.look(self._inputs)
        action = self._infer()[0]
        return self.spec.action_map.to_command(action if self._queue is None else action[:, 0])

    def accept(self, command: RobotCommand) -> None:
        """Say what the robot really did after `act`, where a person or safety changed the command.

        The next observation then shows it as the last action, as in training. Real-time.
        """
        action = self.spec.action_map.from_command(command)
        np.clip(action, -1.0, 1.0, out=self._inputs.last_action)

    def remember(self, action: np.ndarray) -> None:
        """Take an action (N, A) as the last one; for a replay that begins within an episode."""
        np.clip(action, -1.0, 1.0, out=self._inputs.last_action)

    def _observe(self) -> np.ndarray:
        observation = self._map.update(self._inputs)
        if self._starting.any():
            rows = EnvSelection(self._starting)
            rows.put(observation, self._map.reset(rows, self._inputs))
            self._starting[:] = False
        if not np.isfinite(observation).all():
            raise NonFiniteError(self._describe_non_finite(observation))
        return observation

    def _run_network(self) -> np.ndarray:
        if self._queue is not None:
            if self._queue.due.any():  # some robot has done what was planned
                self._queue.put(self._infer()[0])
            action = self._queue.take()
        else:
            action, *state = self._infer()
            if state:
                self._state = state[0]
        if not np.isfinite(action).all():
            raise NonFiniteError(f"the policy's action is not finite: {action}; stop the robot")
        return action

    def _infer(self) -> list[Any]:
        """Action, and the next recurrent state where there is one."""
        if self.spec.initial_state:
            feed = {"actor": self._observation, "state": self._state}
            return list(self._network.run(["action", "next_state"], feed))
        return list(self._network.run(["action"], {"actor": self._observation}))

    def _check_widths(self) -> None:
        for config, here, exported in zip(
            self.spec.terms, self._map.widths, self.spec.widths, strict=True
        ):
            if here != exported:
                raise SpecMismatchError(
                    f"observation term '{config.term}' is {here} wide here, but was {exported} "
                    "wide when the policy was exported; install the robot_rl that its "
                    "provenance.json names or train again"
                )

    def _describe_non_finite(self, observation: np.ndarray) -> str:
        widths = self._map.widths
        robot, column = np.argwhere(~np.isfinite(observation))[0]
        ends = np.cumsum([w * t.history for w, t in zip(widths, self.spec.terms, strict=True)])
        name = self.spec.terms[int(np.searchsorted(ends, column, side="right"))].term
        return (
            f"observation term '{name}' of robot {robot} is {observation[robot, column]}, expected "
            "finite numbers; stop the robot and look at its state estimate"
        )


def _check_chunks(spec: PolicySpec, network: onnxruntime.InferenceSession) -> None:
    expected = [spec.chunk_length, spec.action_map.size]
    got = network.get_outputs()[0].shape[1:]
    if got != (expected if spec.chunk_length > 1 else expected[1:]):
        raise BundleError(
            f"the spec says chunks of {spec.chunk_length} actions with {expected[1]} entries, and "
            f"the network gives {got} for a robot; export the policy again"
        )


def _buffers(count: int, widths: Mapping[str, int]) -> dict[str, np.ndarray]:
    return {name: np.zeros((count, width), np.float32) for name, width in widths.items()}


def _fill(kind: str, buffers: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
    for name, buffer in buffers.items():
        if name not in values:
            raise SpecMismatchError(
                f"the policy needs the {kind} '{name}', which was not given; "
                f"given: {', '.join(sorted(values)) or 'nothing'}"
            )
        value = values[name]
        if np.shape(value) != buffer.shape:
            raise ShapeError(
                f"{kind} '{name}': expected shape {buffer.shape} (robots, width), "
                f"got {np.shape(value)}"
            )
        buffer[:] = value
