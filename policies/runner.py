"""Runs a trained policy with numpy and onnxruntime: from a measured state to a robot command."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import onnxruntime

from policies.caller import CallerSpec, TargetRamp
from policies.cameras import CameraInput, FrameStacks
from policies.decoding import as_object, decode, entry
from robot_rl.core.action import ActionMap
from robot_rl.core.env_selection import EnvSelection
from robot_rl.core.episodic import ChunkQueue, ClockSpec, GoalClock
from robot_rl.core.errors import (
    BundleError,
    ConfigError,
    NonFiniteError,
    RobotRLError,
    ShapeError,
    SpecMismatchError,
)
from robot_rl.core.observation import (
    IMAGE_PREFIX,
    ObservationInputs,
    ObservationMap,
    RobotState,
    TermConfig,
)
from robot_rl.core.playback import Playback, PlaybackSpec
from robot_rl.core.pose_target import TARGET_OFFSET, CommandMaker
from robot_rl.core.robot import RobotSpec
from robot_rl.core.robot_command import CommandKind, JointCommand, RobotCommand

_MOST_NUMBERS = 100_000
"""Of an observation, of all inputs of one robot, and of a chunk of actions."""
_SAME_TARGET = 1e-6
"""Largest difference between two joint targets that are the same one [rad] or [m]."""
_SAME_ACTION = 1e-5
"""Largest difference between two actions that are the same one."""


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
    """Further named inputs, with their widths. A `PolicyRunner` knows `TARGET_OFFSET` by itself."""
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
    playback: PlaybackSpec | None = None
    """Goals of a clip, which are played where nobody sends them; None for no clip."""
    caller: CallerSpec | None = None
    """Duties of whoever runs the policy; None in bundles that were written before."""
    cameras: dict[str, CameraInput] = field(default_factory=dict)
    """Cameras that are seen, by name; the network reads each as `image/<name>`."""

    @property
    def observation_size(self) -> int:
        """D: width of the group `actor`."""
        return sum(w * t.history for w, t in zip(self.widths, self.terms, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        layout = [t.to_dict(w) for t, w in zip(self.terms, self.widths, strict=True)]
        cameras = {name: asdict(camera) for name, camera in self.cameras.items()}
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
            "caller": self.caller and asdict(self.caller),
            "robot": self.robot.to_dict(),
            # Programs of before do not know these.
            **({"cameras": cameras} if cameras else {}),
            **({"playback": self.playback.to_dict()} if self.playback is not None else {}),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PolicySpec":
        """Rebuild from `to_dict`; nothing is believed before its type and size were checked.

        Raises:
            ConfigError: A value is missing, of another type, out of range, or contradicts another.
            SpecMismatchError: The robot does not accept the commands.
        """
        where, plain = "policy", dict(values)
        layout = entry(plain, "groups", dict[str, Any], where)
        if list(layout) != ["actor"]:
            raise ConfigError(f"policy.groups: expected 'actor' alone, got {len(layout)} groups")
        terms = [
            dict(as_object(term, f"{where}.groups.actor[{i}]"))
            for i, term in enumerate(decode(layout["actor"], list[Any], f"{where}.groups.actor"))
        ]
        widths = [entry(term, "width", int, f"{where}.groups.actor[{i}]")
                  for i, term in enumerate(terms)]  # fmt: skip
        del plain["groups"]
        plain["terms"] = [{k: v for k, v in term.items() if k != "width"} for term in terms]
        spec: PolicySpec = decode(plain | {"widths": widths}, cls, where)
        spec._check_sizes()
        return spec

    @property
    def given_widths(self) -> dict[str, int]:
        """Further named inputs that the caller gives, with their widths."""
        own = TARGET_OFFSET if self.action_map.pose is not None else ""
        return {name: width for name, width in self.sensed_widths.items() if name != own}

    def _check_sizes(self) -> None:
        """Refuse what no memory holds, and lists that do not fit each other."""
        inputs = [*self.robot.state_widths.values(), *self.goal_widths.values(),
                  *self.sensed_widths.values()]  # fmt: skip
        actions = self.action_map.size
        sizes = {
            "numbers of an observation": self.observation_size,
            "numbers of all inputs": sum(inputs),
            "numbers of a chunk": self.chunk_length * actions,
        }
        for what, size in sizes.items():
            if not 0 <= size <= _MOST_NUMBERS:
                raise ConfigError(f"policy: expected up to {_MOST_NUMBERS} {what}, got {size}")
        if min([*self.widths, *inputs], default=0) < 0 or self.chunk_length < 1:
            raise ConfigError("policy: widths must be >= 0 and chunk_length >= 1")
        if not 0 < self.control_dt < 3600:
            raise ConfigError(f"policy.control_dt: expected a time > 0 s, got {self.control_dt}")
        if len(self.initial_action) != actions:
            raise ConfigError(
                f"policy.initial_action: expected {actions} entries as in the action map, got "
                f"{len(self.initial_action)}"
            )
        self._check_robot()

    def _check_robot(self) -> None:
        robot, actions = self.robot, self.action_map
        actions.check_robot(robot)
        expected = {
            CommandKind.rotors: len(robot.rotors),
            CommandKind.body_rates: 4,
            CommandKind.joint: robot.num_joints + actions.gripper,
            CommandKind.pose: actions.size,  # `ActionMap` has compared it with its axes
        }[actions.kind]
        if actions.size != expected:
            raise ConfigError(
                f"policy.action_map: expected {expected} entries for the '{actions.kind.value}' "
                f"commands of robot '{robot.name}', got {actions.size}"
            )
        pairs = [*actions.limit, *(joint.position_limit for joint in robot.joints)]
        if any(len(pair) != 2 or not pair[0] <= pair[1] for pair in pairs):
            raise ConfigError("policy: expected limits of joints and actions as [lower, upper]")
        for name, clock in self.clocks.items():
            if self.goal_widths.get(name) != 2 or clock.moves not in self.goal_widths:
                raise ConfigError(
                    f"policy.clocks: the clock '{name}' must be a goal of width 2, and what it "
                    f"follows, '{clock.moves}', a goal; goals: {self.goal_widths}"
                )
        if self.playback is not None:
            self.playback.check(self.goal_widths)
        moves = self.action_map.pose is not None
        if moves and (width := self.sensed_widths.get(TARGET_OFFSET, 6)) != 6:
            raise ConfigError(
                f"policy.sensed_widths: expected 6 numbers of '{TARGET_OFFSET}', the way to the "
                f"target along three axes and about them, got {width}"
            )
        for name, camera in self.cameras.items():
            camera.check(name)
        if self.caller is not None:
            self.caller.check(robot.num_joints)


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
        self,
        spec: PolicySpec,
        network: onnxruntime.InferenceSession,
        num_robots: int = 1,
        *,
        ramp: bool = False,
    ) -> None:
        """Build the observation map and its buffers; episodes start with the first `act`.

        Args:
            network: From `open_network`; may be shared by runners.
            ramp: Let joint targets move no faster than in training, where the spec states speeds.

        Raises:
            SpecMismatchError: A term is as wide here as it was not when the bundle was written.
            BundleError: The network's inputs or outputs are not those that the spec says.
        """
        self.spec = spec
        _check_network(spec, network)
        self._network = network
        self._inputs = _inputs(spec, num_robots)
        self._frames = FrameStacks(spec.cameras, num_robots)
        check_widths(spec)
        self._map = ObservationMap(spec.terms, self._inputs)
        self._observation = np.zeros((num_robots, self._map.size), np.float32)
        self._state = np.zeros((num_robots, len(spec.initial_state)), np.float32)
        self._starting = np.zeros(num_robots, bool)
        self._ramp: TargetRamp | None = None
        limit = spec.caller.target_speed_limit if spec.caller else None
        if ramp and limit is not None and spec.action_map.kind is CommandKind.joint:
            self._ramp = TargetRamp(limit, num_robots)
        self._held = 0.5 * spec.control_dt  # time after `act` that its targets are of
        self._command: RobotCommand | None = None  # of the last `act`, before it is ramped
        self._maker = CommandMaker(spec.action_map)
        self._reach = spec.action_map.reach  # ends of the actions that are not cut, (2, A)
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
        pictures: Mapping[str, np.ndarray] | None = None,
    ) -> RobotCommand:
        """Observe, run the network, and turn its action into a command.

        Real-time: never blocks, allocates only small arrays. Call it once per control period.

        Args:
            state: Every field that the robot's spec declares, each (N, width).
            goal: Every entry that the policy was trained with, each (N, width).
            sensed: Further inputs, each (N, width). `TARGET_OFFSET` is left out: the way to the
                target that the actions displace is known here, from what `accept` was told.
            pictures: The newest of every camera, (N, height, width, C) uint8 each.

        Raises:
            NonFiniteError: An observation or action is NaN or infinite; `reset` before going on.
            SpecMismatchError: An input is missing.
            ShapeError: An input has another shape.
        """
        _fill("state field", self._inputs.state.fields, state.fields)
        _fill("goal", self._inputs.goal, goal)
        starting = self._starting.copy()
        further = dict(sensed or {})
        if len(self.spec.given_widths) < len(self.spec.sensed_widths):
            known = self._maker.offset(self._inputs.state, starting)
            further.setdefault(TARGET_OFFSET, known)
        _fill("sensed input", self._inputs.sensed, further)
        self._frames.update(pictures or {}, starting)
        self._observation = self._observe()
        action = self._run_network()
        if self._ramp is not None:
            self._step_ramp(self._ramp, starting)
        np.clip(action, -1.0, 1.0, out=self._inputs.last_action)
        command = self._command = self._maker.command(action, self._inputs.state, starting)
        return command if self._ramp is None else self.command_after(self._held)

    def command_after(self, elapsed: float) -> RobotCommand:
        """Command of the last `act` as it is some time after it, targets under way.

        For a loop that is faster than the policy. `act` itself returns the targets in the middle of
        the control period: held throughout, they lag no more than they lead. Real-time.

        Args:
            elapsed: Time since `act`, in [0, control_dt] [s].

        Raises:
            SpecMismatchError: Nothing was decided yet.
        """
        if self._command is None:
            raise SpecMismatchError("command_after was asked for before the first act; act first")
        if self._ramp is None or not isinstance(self._command, JointCommand):
            return self._command
        return replace(self._command, q=self._ramp.at(self._command.q, elapsed))

    def clocks(self) -> dict[str, GoalClock]:
        """New clocks for the goals that run by themselves, by name, for all robots served."""
        spec, count = self.spec, len(self._starting)
        return {name: GoalClock(one, spec.control_dt, count) for name, one in spec.clocks.items()}

    def playback(self) -> Playback | None:
        """A new player of the policy's clip, for one robot; None where it follows none."""
        return None if self.spec.playback is None else Playback(self.spec.playback)

    def rehearse(self) -> RobotCommand:
        """Command of `act` once more, on the inputs that it had last; nothing is remembered.

        A policy sleeps between its periods, and others use the processor: what ran a moment ago
        runs faster. So call it shortly before the next inputs are due. Real-time.
        """
        self._map.look(self._inputs)
        action = self._infer()[0]
        return self._maker.preview(
            action if self._queue is None else action[:, 0], self._inputs.state
        )

    def accept(self, command: RobotCommand) -> None:
        """Say what the robot really did after `act`, where a person or safety changed the command.

        The next observation then shows it as the last action, as in training. A target that is the
        one under way, as `act` returned it, leaves its action as it is. Real-time.
        """
        action = self._maker.accept(command)
        if self._reach is not None:  # an entry that its limit cut is what was decided, cut
            decided = np.clip(self._inputs.last_action, *self._reach)
            same = np.abs(action - decided) <= _SAME_ACTION
            action = np.where(same, self._inputs.last_action, action)
        if self._ramp is not None and isinstance(command, JointCommand):
            action = self._accepted(self._ramp, action, command.q)
        np.clip(action, -1.0, 1.0, out=self._inputs.last_action)

    def remember(self, action: np.ndarray) -> None:
        """Take an action (N, A) as the last one; for a replay that begins within an episode."""
        np.clip(action, -1.0, 1.0, out=self._inputs.last_action)

    def _step_ramp(self, ramp: TargetRamp, starting: np.ndarray) -> None:
        """Take the targets over from the period before; new episodes begin where joints are."""
        before = self._command
        if isinstance(before, JointCommand):
            ramp.position = ramp.at(before.q, self.spec.control_dt)
        ramp.begin(starting, self._inputs.state.joint_position)

    def _accepted(self, ramp: TargetRamp, action: np.ndarray, q: np.ndarray) -> np.ndarray:
        command, joints = self._command, np.shape(q)[1]
        if not isinstance(command, JointCommand):
            return action
        under_way = ramp.at(command.q, self._held)
        same = np.abs(q - under_way) <= _SAME_TARGET
        # What was changed is where the next period begins, and what it aims at until then.
        ramp.position = np.where(same, ramp.position, q)
        self._command = replace(command, q=np.where(same, command.q, q))
        action = action.copy()
        action[:, :joints] = np.where(
            same, self._inputs.last_action[:, :joints], action[:, :joints]
        )
        return action

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
        feed = {"actor": self._observation, **self._frames.stacks}
        if self.spec.initial_state:
            return list(self._network.run(["action", "next_state"], {**feed, "state": self._state}))
        return list(self._network.run(["action"], feed))

    def _describe_non_finite(self, observation: np.ndarray) -> str:
        widths = self._map.widths
        robot, column = np.argwhere(~np.isfinite(observation))[0]
        ends = np.cumsum([w * t.history for w, t in zip(widths, self.spec.terms, strict=True)])
        name = self.spec.terms[int(np.searchsorted(ends, column, side="right"))].term
        return (
            f"observation term '{name}' of robot {robot} is {observation[robot, column]}, expected "
            "finite numbers; stop the robot and look at its state estimate"
        )


def check_widths(spec: PolicySpec) -> None:
    """Refuse terms that are as wide here as they were not when the bundle was written.

    Histories are left out: they are as long as a width times a number of the spec.

    Raises:
        SpecMismatchError: One is, or reads what is not given.
    """
    try:
        frames = ObservationMap([replace(t, history=1) for t in spec.terms], _inputs(spec, 1))
    except RobotRLError:
        raise
    except (ValueError, IndexError) as error:  # numpy's, of inputs that do not fit each other
        raise SpecMismatchError(
            f"the observation terms cannot be made from inputs as wide as the spec says ({error}): "
            f"state {spec.robot.state_widths}, goal {spec.goal_widths}, sensed "
            f"{spec.sensed_widths}; export the policy again"
        ) from error
    for config, here, exported in zip(spec.terms, frames.widths, spec.widths, strict=True):
        if here != exported:
            raise SpecMismatchError(
                f"observation term '{config.term}' is {here} wide here, but was {exported} "
                "wide when the policy was exported; install the robot_rl that its "
                "provenance.json names or train again"
            )


def _check_network(spec: PolicySpec, network: onnxruntime.InferenceSession) -> None:
    """Refuse a network that reads or gives something else than the spec says."""
    actions, memory = spec.action_map.size, len(spec.initial_state)
    chunk = [spec.chunk_length] if spec.chunk_length > 1 else []
    inputs = {"actor": [spec.observation_size]} | ({"state": [memory]} if memory else {})
    inputs |= {IMAGE_PREFIX + name: list(one.shape) for name, one in spec.cameras.items()}
    outputs = {"action": [*chunk, actions]} | ({"next_state": [memory]} if memory else {})
    for what, expected, nodes in (
        ("reads", inputs, network.get_inputs()),
        ("gives", outputs, network.get_outputs()),
    ):
        got = {node.name: list(node.shape[1:]) for node in nodes}
        fixed = any(isinstance(node.shape[0], int) for node in nodes if node.shape)
        numbers = all(
            node.type == f"tensor({'uint8' if node.name.startswith(IMAGE_PREFIX) else 'float'})"
            for node in nodes
        )
        if got != expected or fixed or not numbers:
            raise BundleError(
                f"the spec says observations of {spec.observation_size} entries and chunks of "
                f"{spec.chunk_length} actions with {actions} entries, so that the network {what} "
                f"float32 (images: uint8) {expected} for each of any number of robots, and the "
                f"network {what} "
                f"{ {node.name: (node.type, node.shape) for node in nodes} }; export the policy "
                "again"
            )


def _inputs(spec: PolicySpec, count: int) -> ObservationInputs:
    return ObservationInputs(
        state=RobotState(_buffers(count, spec.robot.state_widths)),
        goal=_buffers(count, spec.goal_widths),
        last_action=np.zeros((count, spec.action_map.size), np.float32),
        sensed=_buffers(count, spec.sensed_widths),
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
