"""Hears everything that a robot and its policy say, and keeps it as it came.

Messages are neither read nor encoded again. Each is kept with the time at which it came; headers
keep the time of the measurement.
"""

from pathlib import Path

from hardware.recording.bag import BagTopic, BagWriter
from hardware.ros.compat import message
from hardware.ros.policy_node import command_messages
from hardware.ros.policy_step import STEP_TOPIC, STEP_TYPE
from hardware.ros.robot_inputs import GOAL_TYPE, SENSED_TYPE
from hardware.ros.session import Every, RosSession
from hardware.ros.state_messages import state_topics
from policies.runner import PolicySpec

FLUSH_SECONDS = 0.25
"""Largest loss of a killed recorder."""


def recorded_topics(spec: PolicySpec) -> dict[str, tuple[str, str, bool]]:
    """Topics of a robot and its policy -> package, message, and whether it is latched."""
    commands = command_messages(spec)
    command = (commands.package, commands.message, False)
    states = {one.name: (one.package, one.message, False) for one in state_topics(spec.robot)}
    goals = {f"goal/{name}": (*GOAL_TYPE, True) for name in spec.goal_widths}
    sensed = {f"sensed/{name}": (*SENSED_TYPE, False) for name in spec.given_widths}
    return {
        **states, **goals, **sensed,
        STEP_TOPIC: (*STEP_TYPE, False),
        commands.topic: command,
        f"shadow/{commands.topic}": command,
        "safety/state": ("diagnostic_msgs", "DiagnosticStatus", True),
        "safety/estop": ("std_msgs", "Bool", True),
        "/diagnostics": ("diagnostic_msgs", "DiagnosticArray", False),
    }  # fmt: skip


class Recorder:
    """Subscribes to a robot's topics and writes them into a bag."""

    def __init__(self, session: RosSession, spec: PolicySpec, folder: Path, digest: str) -> None:
        """Make the bag and subscribe.

        Args:
            session: A node in the robot's namespace.
            folder: Of the bag; must not exist.
            digest: Of the policy's bundle; a replay compares it.

        Raises:
            RecordingError: The folder cannot be made.
        """
        about = {
            "robot": spec.robot.name, "namespace": session.node.get_namespace(),
            "bundle_digest": digest, "control_dt": repr(spec.control_dt),
        }  # fmt: skip
        self._session = session
        self._writer = BagWriter(folder, about)
        self._sources: dict[str, Every] = {}
        for name, (package, kind, latched) in recorded_topics(spec).items():
            full = session.node.resolve_topic_name(name)
            topic = BagTopic(
                name=full, kind=f"{package}/msg/{kind}", latched=latched,
                reliable=name == STEP_TOPIC,
            )  # fmt: skip
            self._writer.add(topic)
            if name != STEP_TOPIC:
                self._sources[full] = session.every(name, message(package, kind), latched=latched)
        used = [topic.name for topic in state_topics(spec.robot)]
        used += [f"sensed/{name}" for name in spec.given_widths]
        self._awaited = [session.node.resolve_topic_name(name) for name in used]
        self._flush_at = 0
        self._first = 0

    def poll(self) -> None:
        """Keep what has come; call it often: 512 messages of a topic may wait.

        Raises:
            RecordingError: The disk is full, or went away.
        """
        for topic, source in self._sources.items():
            for raw, received in source.take():
                self._writer.write(topic, received, raw)
                self._first = self._first or received
        if self._awaited and all(self._sources[topic].count for topic in self._awaited):
            # Not earlier: of a step that is recorded, what it used is recorded, too.
            self._awaited = []
            step = self._session.every(STEP_TOPIC, message(*STEP_TYPE), reliable=True)
            self._sources[self._session.node.resolve_topic_name(STEP_TOPIC)] = step
        if (now := self._session.now()) >= self._flush_at:
            self._writer.flush()
            self._flush_at = now + round(FLUSH_SECONDS * 1e9)

    @property
    def count(self) -> int:
        """Messages that are kept."""
        return sum(source.count for source in self._sources.values())

    @property
    def line(self) -> str:
        """For a terminal: seconds, messages, and what never came."""
        if not self._first:
            return f"nothing has come yet below {self._session.node.get_namespace()}"
        seconds = (self._session.now() - self._first) * 1e-9
        below = f"{self._session.node.get_namespace().rstrip('/')}/"
        counts = "  ".join(
            f"{topic.removeprefix(below)} {source.count}"
            for topic, source in self._sources.items()
            if source.count
        )
        lost = sum(source.lost for source in self._sources.values())
        return f"{seconds:6.1f} s  lost {lost}  {counts}"

    def close(self) -> bool:
        """End the bag; one that holds nothing is removed.

        Returns:
            Whether anything was recorded.

        Raises:
            RecordingError: The disk is full, or went away.
        """
        self.poll()
        if not self.count:
            self._writer.discard()
            return False
        self._writer.close()
        return True
