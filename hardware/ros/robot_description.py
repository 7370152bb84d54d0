"""The robot's URDF on `robot_description`, and where its base is, in tf.

`robot_state_publisher` makes the transforms of the links from the URDF and `joint_states`. What it
cannot know is where the base is: that is published here, odom -> base_link, for robots that measure
position and attitude. Frames stand behind the namespace, as `frame_prefix` of that node says.
"""

from typing import Any

from hardware.ros.compat import RosError, message
from hardware.ros.message_parts import Fields, put_quaternion, put_stamp, put_vector
from hardware.ros.session import RosSession
from hardware.ros.state_messages import BASE_FRAME, ODOM_FRAME
from robot_rl.core.robot import RobotSpec

_PERIOD = 20_000_000
"""Least time between two transforms [ns]."""
_POSE = ("position_w", "orientation_w")


class RobotDescription:
    """Facts that viewers and planners need of a robot beside its measurements."""

    def __init__(self, session: RosSession, spec: RobotSpec, urdf: str) -> None:
        """Publish the URDF, latched; nothing where it is empty."""
        if urdf:
            kind: Any = message("std_msgs", "String")
            session.publisher("robot_description", kind, latched=True).publish(kind(data=urdf))
        self._prefix, self._sent = session.frame_prefix, 0
        self._kind = _transforms() if all(name in spec.sensors for name in _POSE) else None
        if self._kind is not None:  # listeners insist on certainty and a queue
            self._transforms = session.publisher("/tf", self._kind, reliable=True, depth=100)

    def publish(self, fields: Fields, stamp: int) -> None:
        """Send the pose of the base, measured at a time [ns], at most 50 times a second."""
        if self._kind is None or stamp - self._sent < _PERIOD:
            return
        self._sent = stamp
        self._transforms.publish(
            self._kind(transforms=[base_transform(fields, stamp, self._prefix)])
        )


def _transforms() -> Any | None:
    try:
        return message("tf2_msgs", "TFMessage")
    except RosError:  # there are no wheels of it, and without it no listener here either
        return None


def base_transform(fields: Fields, stamp: int, prefix: str) -> Any:
    """Pose of the base as a geometry_msgs/TransformStamped.

    Args:
        fields: position_w and orientation_w, (1, ...).
        stamp: Of the measurement [ns].
        prefix: Before the names of frames, such as `go2/`.
    """
    packed: Any = message("geometry_msgs", "TransformStamped")()
    put_stamp(packed.header, stamp)
    packed.header.frame_id = prefix + ODOM_FRAME
    packed.child_frame_id = prefix + BASE_FRAME
    put_vector(packed.transform.translation, fields["position_w"])
    put_quaternion(packed.transform.rotation, fields["orientation_w"])
    return packed
