"""Copies of recordings in which something is missing or different."""

import shutil
from collections.abc import Callable
from pathlib import Path

from hardware.recording.bag import Bag, BagTopic, BagWriter
from hardware.ros.policy_step import STEP_TOPIC

KINDS = {"joint_states": "sensor_msgs/msg/JointState", STEP_TOPIC: "std_msgs/msg/Float64MultiArray"}

Edit = Callable[[str, int, bytes], bytes | None]
"""Topic without its namespace, number of the message there, message -> what is kept of it."""


def edited(bag: Path, edit: Edit, **about: str) -> Path:
    """A copy of a bag, beside it."""
    with Bag(bag) as source:
        copy = bag.with_name("edited")
        shutil.rmtree(copy, ignore_errors=True)
        writer = BagWriter(copy, source.about | about)
        seen: dict[str, int] = {}
        for topic, received, raw in source.messages(source.topics):
            name = topic.removeprefix(f"{source.about['namespace']}/")
            number = seen[name] = seen.get(name, -1) + 1
            kept = edit(name, number, raw)
            if kept is not None:
                kind = next(c.msgtype for c in source._reader.connections if c.topic == topic)
                writer.add(BagTopic(name=topic, kind=kind))
                writer.write(topic, received, kept)
    writer.close()
    return writer.folder
