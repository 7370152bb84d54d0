"""Measurements on a GPU, and their requirements."""

from dataclasses import dataclass

REQUIREMENTS = (
    "an NVIDIA GPU and its driver; what worlds and replay take of it is printed before they do",
    "python >= 3.11",
    "torch: the CUDA build that constraints.txt pins (pip's default on Linux with a GPU)",
    "pip install -c constraints.txt -e '.[train,sim,gpu]'",
    "for PPO in the same worlds beside it: rsl-rl-lib >= 5.5",
    "for mjlab beside it: a Python that has mjlab 1.6 (`make adapters` makes one), mjlab_python=",
    "no network while it runs",
)
"""One line each."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A task on the device, trained there and checked afterwards by another engine."""

    name: str
    overrides: tuple[str, ...]
    """Overrides of the training."""
    checked_with: tuple[str, ...] = ()
    """Overrides when its policy is checked on the CPU."""
    metric: str = ""
    """The tracking error that is told beside success, a metric of the task."""
    about: str = ""
    """In words."""
    mjlab: str = ""
    """The nearest task of mjlab, if there is one."""


_IN_C = ("robot.engine=batch",)
WORLDS = (
    World(
        name="hover", overrides=("task=hover",), metric="mean_distance",
        about="a Crazyflie that was thrown flies to a place and stays there",
    ),
    World(
        name="go2", overrides=("experiment=velocity_gpu", "robot=go2"),
        checked_with=_IN_C, metric="mean_velocity_error",
        about="a quadruped walks as fast as asked, and is pushed",
        mjlab="Mjlab-Velocity-Flat-Unitree-Go1",
    ),
    World(
        name="g1", overrides=("experiment=velocity_gpu", "robot=g1"),
        checked_with=_IN_C, metric="mean_velocity_error", about="a humanoid does",
        mjlab="Mjlab-Velocity-Flat-Unitree-G1",
    ),
)  # fmt: skip
"""In the order in which they are measured."""
