"""A URDF of an arm with six joints in simple shapes, as people bring one."""

import struct
from collections.abc import Sequence

JOINTS = ("pan", "lift", "elbow", "wrist_1", "wrist_2", "wrist_3")
AXES = ("0 0 1", "0 1 0", "0 1 0", "0 1 0", "0 0 1", "0 1 0")
LENGTHS = (0.15, 0.3, 0.3, 0.1, 0.1, 0.08)
"""Of the link that each joint moves [m]."""
EFFORTS = (60.0, 60.0, 40.0, 12.0, 12.0, 12.0)
_INERTIA = '<inertia ixx="0.02" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.01"/>'


def six_joint_urdf(*, name: str = "Six Arm", tool: str = "tool0") -> str:
    """Links `base_link` and `link_1` to `link_6` above each other, and a tool without mass."""
    lines = [
        f'<robot name="{name}">',
        _link("base_link", 0.1, 3.0),
        *(_link(f"link_{i + 1}", length, 1.0) for i, length in enumerate(LENGTHS)),
        f'<link name="{tool}"/>',
    ]
    parent, height = "base_link", 0.1
    for i, joint in enumerate(JOINTS):
        lines.append(
            f'<joint name="{joint}" type="revolute"><parent link="{parent}"/>'
            f'<child link="link_{i + 1}"/><origin xyz="0 0 {height}"/><axis xyz="{AXES[i]}"/>'
            f'<limit lower="-2.{i}" upper="2.5" effort="{EFFORTS[i]:g}" velocity="3.{i}"/>'
            '<dynamics damping="0.5" friction="0"/></joint>'
        )
        parent, height = f"link_{i + 1}", LENGTHS[i]
    lines.append(
        f'<joint name="mount" type="fixed"><parent link="link_6"/><child link="{tool}"/>'
        '<origin xyz="0 0 0.08"/></joint>'
    )
    return "\n".join([*lines, "</robot>"])


def _link(name: str, length: float, mass: float) -> str:
    shape = f'<geometry><cylinder radius="0.04" length="{length}"/></geometry>'
    origin = f'<origin xyz="0 0 {length / 2}"/>'
    return (
        f'<link name="{name}"><inertial>{origin}<mass value="{mass}"/>{_INERTIA}</inertial>'
        f"<visual>{origin}{shape}</visual><collision>{origin}{shape}</collision></link>"
    )


def tetrahedron_stl(size: float) -> bytes:
    """A mesh file with four faces, binary STL; lengths in metres."""
    corners = [(0.0, 0.0, 0.0), (size, 0.0, 0.0), (0.0, size, 0.0), (0.0, 0.0, size)]
    faces: Sequence[tuple[int, int, int]] = ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))
    content = bytes(80) + struct.pack("<I", len(faces))
    for face in faces:
        numbers = [0.0] * 3 + [value for corner in face for value in corners[corner]]
        content += struct.pack("<12fH", *numbers, 0)
    return content
