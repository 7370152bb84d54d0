"""A bundle for other programs: metadata within the network, and a file for ros2_control.

Names and the comma-separated form of the metadata are those of mjlab's and Isaac Lab's exporters,
which controllers for ros2_control read. Such a controller observes joint positions relative to the
default pose, gives actions times a scale as targets around it, remembers nothing and ramps nothing.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from policies.bundle import ROS2_FILE, ROS2_NETWORK
from policies.runner import PolicySpec
from robot_rl.core.observation import GOAL_PREFIX, STATE_PREFIX
from robot_rl.core.robot_command import CommandKind

_NAMES = {
    "linear_velocity_b": "base_lin_vel",
    "angular_velocity_b": "base_ang_vel",
    "projected_gravity_b": "projected_gravity",
    "joint_position": "joint_pos",
    "joint_velocity": "joint_vel",
    "last_action": "actions",
    f"{GOAL_PREFIX}velocity_b": "velocity_commands",
}
"""Our terms -> what these controllers call them."""
_JOINT_POSITION = "joint_position"


def metadata(spec: PolicySpec) -> dict[str, Any]:
    """Entries by name: lists in the joints' order or that of the terms, and numbers."""
    terms = spec.terms
    entries: dict[str, Any] = {
        "observation_names": [_name(term.term) for term in terms],
        "observation_scales": [term.scale for term in terms],
        "observation_history_lengths": [term.history for term in terms],
        "command_names": list(spec.goal_widths),
        "control_dt": spec.control_dt,
    }
    action_map = spec.action_map
    if action_map.kind is CommandKind.joint:
        ends = list(zip(action_map.low, action_map.high, strict=True))[: spec.robot.num_joints]
        entries |= {
            "joint_names": spec.robot.joint_names,
            "joint_stiffness": action_map.stiffness,
            "joint_damping": action_map.damping,
            "default_joint_pos": [round(0.5 * (low + high), 9) for low, high in ends],
            "action_scale": [round(0.5 * (high - low), 9) for low, high in ends],
        }
    return entries


def with_metadata(network: bytes, spec: PolicySpec) -> bytes:
    """The same network with `metadata` as its properties."""
    model = onnx.load_from_string(network)
    texts = {name: _csv(value) for name, value in metadata(spec).items()}
    helper.set_model_props(model, texts)
    return model.SerializeToString()


def ros2_control(network: bytes, spec: PolicySpec) -> dict[str, bytes]:
    """Files for ros2_control by name: parameters and a network, or the reasons against it."""
    import yaml

    reasons = _reasons(spec)
    known = metadata(spec)
    values: dict[str, Any] = {"runnable": not reasons}
    files: dict[str, bytes] = {}
    if reasons:
        values["reasons"] = reasons
    else:
        values |= {
            "model_path": ROS2_NETWORK,
            "update_rate": round(1 / spec.control_dt, 6),
            **known,
        }
        files[ROS2_NETWORK] = _fed_by_a_controller(network, spec)
    content = {"policy_controller": {"ros__parameters": values}}
    files[ROS2_FILE] = yaml.safe_dump(content, sort_keys=False, width=100).encode()
    return files


def _reasons(spec: PolicySpec) -> list[str]:
    """Reasons why a controller of ros2_control would run the policy wrongly."""
    action_map, caller = spec.action_map, spec.caller
    found: list[str] = []
    if action_map.kind is not CommandKind.joint:
        found.append(f"its commands are '{action_map.kind.value}', not joint positions")
    if action_map.gripper:
        found.append("its last action opens a gripper")
    if action_map.reach is not None:
        found.append("its targets are cut at the joints' limits")
    if caller is not None and caller.gravity_compensation:
        found.append("its robot's controller bears the weight of the links")
    if spec.initial_state:
        found.append("it has a recurrent state")
    if spec.cameras:
        found.append(f"it sees the cameras {', '.join(spec.cameras)}")
    if spec.chunk_length > 1:
        found.append(f"it gives chunks of {spec.chunk_length} actions")
    if any(spec.initial_action):
        found.append("its first last action is not zero")
    if caller is not None and caller.target_speed_limit is not None:
        found.append("its targets must move no faster than caller.target_speed_limit")
    found += [
        f"the observation term '{term.term}' has no counterpart there"
        for term in spec.terms
        if _own(term.term) not in _NAMES
    ]
    found = [*dict.fromkeys(found)]  # a term may be there twice, scaled in two ways
    found += [f"the term '{term.term}' is clipped" for term in spec.terms if term.clip is not None]
    found += [f"the term '{term.term}' is averaged" for term in spec.terms if term.average]
    return found


def _fed_by_a_controller(network: bytes, spec: PolicySpec) -> bytes:
    """Network `obs` -> `actions`, which sees joint positions relative to the default pose."""
    pose = np.array(metadata(spec)["default_joint_pos"])
    parts = [
        np.tile(term.scale * pose if _own(term.term) == _JOINT_POSITION else np.zeros(width),
                term.history)
        for term, width in zip(spec.terms, spec.widths, strict=True)
    ]  # fmt: skip
    model = onnx.load_from_string(with_metadata(network, spec))
    graph = model.graph
    offset = np.concatenate(parts)[None].astype(np.float32)  # (1, D)
    graph.initializer.append(numpy_helper.from_array(offset, "default_observation"))
    graph.input[0].name = "obs"
    graph.node.insert(0, helper.make_node("Add", ["obs", "default_observation"], ["actor"]))
    graph.output[0].name = "actions"
    graph.node.append(helper.make_node("Identity", ["action"], ["actions"]))
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _own(term: str) -> str:
    """Name of a term, that of a plain field without its prefix."""
    return term.removeprefix(STATE_PREFIX)


def _name(term: str) -> str:
    return _NAMES.get(_own(term), term)


def _csv(value: Any) -> str:
    values: Iterable[Any] = value if isinstance(value, list) else [value]
    return ",".join(f"{one:.9g}" if isinstance(one, float) else str(one) for one in values)
