"""Which ROS 2 is used, and what is said where it cannot be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware.ros.compat import RosError, RosFacts, choose_installation, inspect_environment
from robot_rl.core.process import clean_environ

EXTENSION = ".cpython-311-x86_64-linux-gnu.so"


def install(prefix: Path, *, extension: str = EXTENSION, rmw: str = "rmw_fastrtps_cpp") -> Path:
    """An installation as far as it is looked at; returns its package rclpy."""
    rclpy = prefix / "lib" / "python3.11" / "site-packages" / "rclpy"
    rclpy.mkdir(parents=True)
    (rclpy / f"_rclpy_pybind11{extension}").touch()
    for name in (rmw, "rmw_implementation", "rmw_dds_common", "rmw_fastrtps_shared_cpp"):
        (prefix / "lib" / f"lib{name}.so").touch()
    return rclpy


def facts(prefix: Path, rclpy: Path | None, *, wheels: bool = False, **environ: str) -> RosFacts:
    return RosFacts(rclpy=rclpy, prefix=prefix, extension=EXTENSION, wheels=wheels, environ=environ)


def test_nothing_names_both_remedies_and_wheels_are_taken_where_nothing_else_is(tmp_path):
    found = choose_installation(facts(tmp_path, install(tmp_path), wheels=True))
    assert found.origin == "wheels"
    assert found.implementations == ["rmw_fastrtps_cpp"]
    assert found.rmw == ""
    with pytest.raises(RosError, match=r"source /opt/ros/.*pip install 'robot_rl\[ros2\]'"):
        choose_installation(facts(tmp_path, None))


def test_sourced_installation_is_taken_where_there_are_no_wheels(tmp_path):
    jazzy = tmp_path / "opt" / "ros" / "jazzy"
    found = choose_installation(
        facts(
            tmp_path / "venv", install(jazzy, rmw="rmw_cyclonedds_cpp"),
            AMENT_PREFIX_PATH=str(jazzy), ROS_DISTRO="jazzy",
            RMW_IMPLEMENTATION="rmw_cyclonedds_cpp",
        )
    )  # fmt: skip
    assert found.origin == "system"
    assert (found.distro, found.rmw) == ("jazzy", "rmw_cyclonedds_cpp")


def test_two_installations_are_refused_whichever_is_found_first(tmp_path):
    venv, jazzy = tmp_path / "venv", tmp_path / "jazzy"
    ours, theirs = install(venv), install(jazzy)
    for first in (ours, theirs):
        with pytest.raises(RosError, match=rf"two ROS 2 installations.*{venv}.*{jazzy}.*unset"):
            choose_installation(facts(venv, first, wheels=True, AMENT_PREFIX_PATH=str(jazzy)))


def test_installation_for_another_python_is_refused(tmp_path):
    jazzy = tmp_path / "jazzy"
    rclpy = install(jazzy, extension=".cpython-312-x86_64-linux-gnu.so")
    with pytest.raises(RosError, match=r"was built for cpython-312.* loads cpython-311"):
        choose_installation(facts(tmp_path / "venv", rclpy, AMENT_PREFIX_PATH=str(jazzy)))


def test_unknown_rmw_is_told_before_ros_ends_the_process(tmp_path):
    with pytest.raises(RosError, match="rmw_zenoh_cpp is not installed; installed: rmw_fastrtps"):
        choose_installation(
            facts(tmp_path, install(tmp_path), wheels=True, RMW_IMPLEMENTATION="rmw_zenoh_cpp")
        )


@pytest.mark.slow
def test_node_can_be_made_whatever_environment_a_service_manager_leaves():
    """With the bootstrapper's guard but without its LD_LIBRARY_PATH no library is found by name."""
    if not inspect_environment().wheels:
        pytest.skip("ROS 2 comes from the system here; the wheels are not installed")
    environ = {**clean_environ(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environ.pop("LD_LIBRARY_PATH", None)
    environ["_ROS_WHEELS_BOOTSTRAP_COMPLETE"] = "1"
    program = (
        "from hardware.ros.compat import rclpy\n"
        "ros = rclpy(); ros.init(domain_id=91)\n"
        "print(ros.create_node('alone').get_name()); ros.shutdown()"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60
    )
    assert answer.stdout.strip() == "alone", answer.stderr
