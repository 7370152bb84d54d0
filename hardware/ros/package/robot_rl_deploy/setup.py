"""Installs launch files and commands where `ros2 run` and `ros2 launch` look for them."""

from glob import glob

from setuptools import setup

NAME = "robot_rl_deploy"

setup(
    name=NAME,
    version="0.1.0",
    description="Runs policies of robot_rl on robots: ros2 run and ros2 launch",
    license="Apache-2.0",
    packages=[],
    zip_safe=True,
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", sorted(glob("launch/*.xml"))),
        (f"lib/{NAME}", sorted(glob("scripts/*"))),
    ],
)
