"""Goals and the scene over real ROS 2, as an environment reads them from the channel `world`."""

import os
from array import array
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from hardware.control.clock import MonotonicClock
from hardware.control.ipc import ArraySubscriber
from hardware.ros.compat import message
from hardware.ros.scene_link import SceneLink

NAME = f"test-scene-{os.getpid()}.world"
WIDTHS = {"goal/place": 3, "sensed/hole": 2, "sensed/axis": 1}
JointState: Any = message("sensor_msgs", "JointState")
Numbers: Any = message("std_msgs", "Float64MultiArray")


@pytest.fixture
def link(sessions) -> Iterator[SceneLink]:
    with closing(SceneLink(sessions("link"), NAME, WIDTHS, MonotonicClock())) as made:
        yield made


def measured(node: Any, values: list[float], age: float = 0.0) -> Any:
    stamp = node.now() - round(age * 1e9)
    made = JointState(position=array("d", values))
    made.header.stamp.sec, made.header.stamp.nanosec = divmod(stamp, 1_000_000_000)
    return made


def test_everything_goes_on_together_as_old_as_its_oldest_part(sessions, link):
    node = sessions("tracker")
    hole, axis = (node.publisher(f"sensed/{name}", JointState) for name in ("hole", "axis"))
    with closing(ArraySubscriber(NAME, WIDTHS)) as reader:

        def told(*messages: tuple[Any, Any], why: str) -> None:
            def ready() -> bool:
                for sender, made in messages:
                    sender.publish(made)
                link.poll()
                return link.trouble == why

            node.wait_until(ready, f"'{why}'")

        told(why="nothing has come yet on goal/place, sensed/hole, sensed/axis")
        told(
            (hole, measured(node, [0.5, 0.1])),
            why="nothing has come yet on goal/place, sensed/axis",
        )
        node.publisher("goal/place", Numbers, latched=True).publish(
            Numbers(data=array("d", [1.0, 2.0, 3.0]))
        )
        told(why="nothing has come yet on sensed/axis")
        assert reader.newer() is None
        clock = MonotonicClock()
        told((axis, measured(node, [0.7], age=0.3)), why="")
        found = reader.newer()
        assert found is not None
        fields, stamp = found
        assert {name: value.tolist() for name, value in fields.items()} == {
            "goal/place": [[1.0, 2.0, 3.0]], "sensed/hole": [[0.5, 0.1]], "sensed/axis": [[0.7]],
        }  # fmt: skip
        assert 0.29 < clock.now() - stamp < 10.0
        told((hole, measured(node, [0.5])), why="sensed/hole has 1 numbers, the policy takes 2")
        for _ in range(3):  # said for as long as it holds, not only while such messages come
            link.poll()
            assert link.trouble == "sensed/hole has 1 numbers, the policy takes 2"
        told((hole, measured(node, [0.5, 0.2])), why="")
