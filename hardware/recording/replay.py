"""Replay of a policy over a recording: the same messages through the same code, step by step.

The policy said on `policy/step` which messages and goals it used, so nothing depends on when they
came. Replay begins where an episode began. After a gap (a lost message, a recorder that came late)
histories are filled again with recorded states and actions, and that many steps are not compared.
`Comparison` sums up how far the replay is from what was recorded.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from hardware.recording.bag import Bag, RecordingError
from hardware.ros.message_parts import Fields
from hardware.ros.policy_node import command_messages
from hardware.ros.policy_step import STEP_TOPIC, PolicyStep, decide, unpack_step
from hardware.ros.robot_inputs import ReadMeasurements, RobotInputs
from hardware.ros.state_messages import StateTopic
from hardware.ros.streams import numbers_of
from policies.runner import PolicyRunner, PolicySpec
from robot_rl.core.robot_command import RobotCommand


@dataclass(frozen=True, kw_only=True)
class ReplayedStep:
    """One step of the recording beside what the policy makes of it now."""

    recorded: PolicyStep
    observation: np.ndarray
    """(D,)."""
    action: np.ndarray
    """(A,), in [-1, 1]."""
    command: Mapping[str, np.ndarray]
    """Field of the command -> (width,)."""
    recorded_command: Mapping[str, np.ndarray] | None
    """Command that went to the robot; None where the recording lacks it."""
    compared: bool
    """False while histories are filled after a gap."""

    @property
    def stamp(self) -> int:
        """Time of the state that was answered [ns]."""
        return next(iter(self.recorded.stamps.values()))


class Replay:
    """A recording and a policy."""

    def __init__(self, bag: Bag, runner: PolicyRunner) -> None:
        """Read what the policy did.

        Raises:
            RecordingError: The recording lacks a topic, or is of another policy.
        """
        self._bag, self._runner = bag, runner
        self.namespace = _namespace(bag)
        self.steps = self._read_steps()
        self.missing = 0
        """Steps whose messages were not recorded."""
        self._used = self._read_used()

    def run(self) -> Iterator[ReplayedStep]:
        """Every step that can be done again, in order.

        Raises:
            RecordingError: A message is damaged.
        """
        spec, tape = self._runner.spec, _Tape()
        inputs = RobotInputs(
            tape, spec.robot, goal_widths=spec.goal_widths, sensed_widths=spec.given_widths
        )
        self._check_fit(tape)
        memory = max(config.history for config in spec.terms)
        long_memory = (
            bool(spec.initial_state) or spec.chunk_length > 1 or spec.action_map.pose is not None
            or any(config.average for config in spec.terms)
        )  # fmt: skip
        frames, compared = 0, False  # frames: how many the histories hold as they were
        before: PolicyStep | None = None
        self.missing = 0
        for step, sent in zip(self.steps, self._sent(), strict=True):
            follows = before is not None and step.number == before.number + 1
            whole = self._put(tape, step)
            self.missing += not whole
            if not whole or (long_memory and not (step.starts or follows)):
                # What a network, a plan, a pose's target or an average was before is not recorded.
                before = None
                continue
            frames = memory if step.starts else frames + 1 if follows else 0
            if before is not None and not compared:
                self._runner.remember(before.action[np.newaxis])
            inputs.poll()
            starts = step.starts or not follows
            command = decide(self._runner, inputs, now=inputs.stamp, starts=starts)
            before, compared = step, frames >= memory
            yield ReplayedStep(
                recorded=step, compared=compared, command=_values(command), recorded_command=sent,
                observation=self._runner.last_observation[0].copy(),
                action=self._runner.last_action[0],
            )  # fmt: skip

    def _put(self, tape: "_Tape", step: PolicyStep) -> bool:
        """Lay out what a step used; False where something of it was not recorded."""
        for topic, stamp in step.stamps.items():
            raw = self._used[topic].get(stamp)
            if raw is None:
                return False
            tape.put(topic, stamp, lambda t=topic, r=raw: self._bag.decode(self._full(t), r))
        for name, value in step.goal.items():
            tape.put(f"goal/{name}", value.tobytes(), lambda v=value: SimpleNamespace(data=v[0]))
        return True

    def _full(self, topic: str) -> str:
        return f"{self.namespace}/{topic}"

    def _read_steps(self) -> list[PolicyStep]:
        topic = self._full(STEP_TOPIC)
        found = [
            unpack_step(self._bag.decode(topic, raw)) for _, _, raw in self._bag.messages([topic])
        ]
        if not found:
            raise RecordingError(
                f"{self._bag.folder} has no message on {topic}: the policy did not run while it "
                "was recorded"
            )
        return found

    def _read_used(self) -> dict[str, dict[int, bytes]]:
        """Serialized messages that the policy used, by topic and stamp."""
        topics = self.steps[0].stamps
        needed = {topic: {step.stamps.get(topic) for step in self.steps} for topic in topics}
        if silent := [topic for topic in topics if not self._bag.topics.get(self._full(topic))]:
            raise RecordingError(
                f"the policy used {', '.join(silent)}, of which {self._bag.folder} has no message; "
                f"recorded: {_told(self._bag.topics)}"
            )
        short = {self._full(topic): topic for topic in topics}
        used: dict[str, dict[int, bytes]] = {topic: {} for topic in topics}
        for full, _, raw in self._bag.messages(short):
            topic, stamp = short[full], _stamp(full, raw)
            if stamp in needed[topic]:
                used[topic][stamp] = raw
        return used

    def _sent(self) -> list[Mapping[str, np.ndarray] | None]:
        """The command of every step, by the stamp of the state that both answer."""
        messages = command_messages(self._runner.spec)
        stamps = [next(iter(step.stamps.values())) for step in self.steps]
        found: dict[int, list[Mapping[str, np.ndarray]]] = {}
        for topic in (self._full(messages.topic), self._full(f"shadow/{messages.topic}")):
            answers: dict[int, list[Mapping[str, np.ndarray]]] = {stamp: [] for stamp in stamps}
            for _, _, raw in self._bag.messages([topic]):
                if (stamp := _stamp(topic, raw)) in answers:
                    command, _ = messages.unpack(self._bag.decode(topic, raw))
                    answers[stamp].append(_values(command))
            found |= {stamp: some for stamp, some in answers.items() if some}
        # Two steps may answer the same state: their commands are told apart by their order only.
        whole = {s: iter(some) for s, some in found.items() if len(some) == stamps.count(s)}
        return [next(whole[stamp]) if stamp in whole else None for stamp in stamps]

    def _check_fit(self, tape: "_Tape") -> None:
        """Refuse a policy that takes or gives something else than the recorded one."""
        spec, step = self._runner.spec, self.steps[0]
        measured = [topic for topic in tape.topics if not topic.startswith("goal/")]
        pairs = {
            "topics": (sorted(step.stamps), sorted(measured)),
            "goals": ({n: v.size for n, v in step.goal.items()}, spec.goal_widths),
            "the width of its observation": (step.observation.size, spec.observation_size),
            "the size of its action": (step.action.size, spec.action_map.size),
        }
        for what, (recorded, here) in pairs.items():
            if recorded != here:
                raise RecordingError(
                    f"the recorded policy differs from this bundle in {what}: recorded {recorded}, "
                    f"this one has {here}"
                )


class _Tape:
    """Messages of every topic at a step: `Topics` for `RobotInputs`."""

    def __init__(self) -> None:
        self.topics: dict[str, _Slot] = {}

    def measured(self, topic: StateTopic, widths: Mapping[str, int]) -> ReadMeasurements:
        del widths
        slot = self.topics[topic.name] = _Slot()

        def read(fields: Fields) -> int | None:
            message = slot.take()
            return None if message is None else topic.unpack(message, fields)

        return read

    def listen(self, topic: str, package: str, kind: str, *, latched: bool = False) -> "_Slot":
        del package, kind, latched
        self.topics[topic] = _Slot()
        return self.topics[topic]

    def put(self, topic: str, identity: object, make: Callable[[], Any]) -> None:
        """Lay out a message, unless it is the one that lay there."""
        slot = self.topics[topic]
        if slot.identity != identity:
            slot.identity, slot.message = identity, make()


@dataclass
class _Slot:
    identity: object = None
    message: Any | None = None

    def take(self) -> Any | None:
        message, self.message = self.message, None
        return message


def _namespace(bag: Bag) -> str:
    ending = f"/{STEP_TOPIC}"
    found = [topic.removesuffix(ending) for topic in bag.topics if topic.endswith(ending)]
    if len(found) != 1:
        raise RecordingError(
            f"{bag.folder} has {len(found)} topics {ending}, on which a policy says what it used; "
            f"expected one, as robot-rl record records it; recorded: {_told(bag.topics)}"
        )
    return found[0]


def _stamp(topic: str, raw: bytes) -> int:
    """Time in the header with which a serialized message begins [ns]."""
    if len(raw) < 12:
        raise RecordingError(f"a message on {topic} has no header: {len(raw)} bytes")
    seconds, nanoseconds = struct.unpack_from("<iI" if raw[1] & 1 else ">iI", raw, 4)
    return seconds * 1_000_000_000 + nanoseconds


def _values(command: RobotCommand) -> dict[str, np.ndarray]:
    return {k: np.asarray(v, np.float64).ravel() for k, v in numbers_of(command).items()}


def _told(topics: Iterable[str]) -> str:
    return ", ".join(sorted(topics)) or "nothing"


TOLERANCE = 1e-6
"""Largest difference, per entry of magnitude up to 1: about eight roundings of a float32."""


@dataclass
class Comparison:
    """Largest differences so far, by what differs."""

    spec: PolicySpec
    steps: int = 0
    """Compared."""
    episodes: int = 0
    """That began and went on: until a policy is in charge, every step of it is a first one."""
    waiting: int = 0
    """First steps that no other followed: of a policy that was not in charge."""
    filling: int = 0
    """Steps that were not compared: histories were filled again after a gap."""
    without_command: int = 0
    """Compared steps whose command was not recorded."""
    differing: int = 0
    """Steps with a difference above the tolerance."""
    first: ReplayedStep | None = None
    """The first of them."""
    _before: PolicyStep | None = field(default=None, init=False)
    largest: dict[str, float] = field(default_factory=dict)
    """`observation/<term>`, `action/<name>`, `<field>/<name>` of the command -> difference."""

    def add(self, step: ReplayedStep) -> None:
        """Compare a step."""
        self._count(step.recorded)
        if not step.compared:
            self.filling += 1
            return
        self.steps += 1
        self.without_command += step.recorded_command is None
        apart = False
        for name, got, expected in self._pairs(step):
            # NaN against a number differs without end; NaN against NaN does not.
            gap = np.abs(np.where(np.isnan(got) & np.isnan(expected), 0.0, got - expected))
            gap[np.isnan(gap)] = np.inf
            self.largest[name] = max(self.largest.get(name, 0.0), float(gap.max(initial=0.0)))
            apart |= bool((gap > TOLERANCE * np.fmax(1.0, np.abs(expected))).any())
        self.differing += apart
        if apart and self.first is None:
            self.first = step

    def _count(self, step: PolicyStep) -> None:
        if step.starts:
            self.waiting += 1
        elif self._before is not None and self._before.starts:
            self.waiting -= 1
            self.episodes += 1
        self._before = step

    @property
    def same(self) -> bool:
        """True if everything that was compared is the same, and anything was."""
        return self.steps > 0 and self.differing == 0

    def _pairs(self, step: ReplayedStep) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for name, part in observation_parts(self.spec):
            yield f"observation/{name}", step.observation[part], step.recorded.observation[part]
        yield from _each("action", action_names(self.spec), step.action, step.recorded.action)
        sent: Mapping[str, np.ndarray] = step.recorded_command or {}
        for entry, values in step.command.items():
            if entry in sent:
                yield from _each(entry, action_names(self.spec), values, sent[entry])


def observation_parts(spec: PolicySpec) -> list[tuple[str, slice]]:
    """Terms of an observation, with the place of each; a term that comes twice is numbered."""
    parts: list[tuple[str, slice]] = []
    start = 0
    seen: dict[str, int] = {}
    for config, width in zip(spec.terms, spec.widths, strict=True):
        seen[config.term] = seen.get(config.term, 0) + 1
        twice = f"#{seen[config.term]}" if seen[config.term] > 1 else ""
        stop = start + width * config.history
        parts.append((f"{config.term}{twice}", slice(start, stop)))
        start = stop
    return parts


def action_names(spec: PolicySpec) -> Sequence[str]:
    """Names for the entries of an action or a command, as far as the robot has any."""
    return spec.robot.joint_names or spec.robot.rotors


def _each(
    what: str, names: Sequence[str], got: np.ndarray, expected: np.ndarray
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for index, (a, b) in enumerate(zip(got, expected, strict=True)):
        name = names[index] if index < len(names) else str(index)
        yield f"{what}/{name}", np.array([a], np.float64), np.array([b], np.float64)
