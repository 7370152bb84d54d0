"""A URDF of a small robot on four legs in simple shapes, with feet that are links of their own."""

_INERTIAL = (
    '<inertial><origin xyz="0 0 {z}"/><mass value="{mass}"/><inertia ixx="{i}" ixy="0" ixz="0" '
    'iyy="{i}" iyz="0" izz="{i}"/></inertial>'
)
LEGS = {"front_left": (1, 1), "front_right": (1, -1), "rear_left": (-1, 1), "rear_right": (-1, -1)}
"""Sides of the legs along x and y."""
FEET = [f"{leg}_foot" for leg in LEGS]
THIGH, SHANK, RADIUS, TIP = 0.15, 0.16, 0.02, 0.012
MASS = 4.0 + 4 * (0.4 + 0.5 + 0.2 + 0.05)


def four_legged_urdf(
    *, knees: str = "-2.5", floating: bool = False, forward: bool = False
) -> str:  # fmt: skip
    """Twelve joints; legs are straight at zero, which the knees' upper limit -0.3 forbids.

    With `forward` they point forward at zero, and each shank has a small ball at its tip.
    """
    rpy, tip = ("0 -1.5707963 0", f'<sphere radius="{TIP}"/>') if forward else ("0 0 0", "")
    links, joints = [_link("trunk", 4.0, 0.0, '<box size="0.4 0.2 0.1"/>')], []
    for leg, (x, y) in LEGS.items():
        links += [
            _link(f"{leg}_hip", 0.4, 0.0, None),
            _link(f"{leg}_thigh", 0.5, -THIGH / 2, f'<cylinder radius="0.02" length="{THIGH}"/>'),
            _link(
                f"{leg}_shank", 0.2, -SHANK / 2, f'<cylinder radius="0.01" length="{SHANK}"/>', tip
            ),
            _link(f"{leg}_foot", 0.05, 0.0, f'<sphere radius="{RADIUS}"/>'),
        ]
        joints += [
            _joint(f"{leg}_abduction", "trunk", f"{leg}_hip", f"{0.18 * x} {0.06 * y} 0", "1 0 0",
                   "-0.7", "0.7"),
            _joint(f"{leg}_pitch", f"{leg}_hip", f"{leg}_thigh", f"0 {0.05 * y} 0", "0 1 0",
                   "-1.5", "2.5", rpy),
            _joint(f"{leg}_knee", f"{leg}_thigh", f"{leg}_shank", f"0 0 {-THIGH}", "0 1 0",
                   knees, "-0.3"),
            f'<joint name="{leg}_ankle" type="fixed"><parent link="{leg}_shank"/>'
            f'<child link="{leg}_foot"/><origin xyz="0 0 {-SHANK}"/></joint>',
        ]  # fmt: skip
    if floating:
        links.append('<link name="world"/>')
        joints.append(
            '<joint name="free" type="floating"><parent link="world"/><child link="trunk"/></joint>'
        )
    return "\n".join(['<robot name="Small Dog">', *links, *joints, "</robot>"])


def _link(name: str, mass: float, middle: float, shape: str | None, tip: str = "") -> str:
    inertial = _INERTIAL.format(z=middle, mass=mass, i=0.01 * mass)
    if shape is None:
        return f'<link name="{name}">{inertial}</link>'
    placed = f'<origin xyz="0 0 {middle}"/><geometry>{shape}</geometry>'
    ball = f'<origin xyz="0 0 {-SHANK}"/><geometry>{tip}</geometry>'
    shapes = f"<collision>{placed}</collision>" + f"<collision>{ball}</collision>" * bool(tip)
    return f'<link name="{name}">{inertial}{shapes}</link>'


def _joint(
    name: str, parent: str, child: str, origin: str, axis: str, low: str, high: str,
    rpy: str = "0 0 0",
) -> str:  # fmt: skip
    return (
        f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="{origin}" rpy="{rpy}"/><axis xyz="{axis}"/>'
        f'<limit lower="{low}" upper="{high}" effort="20" velocity="20"/></joint>'
    )
