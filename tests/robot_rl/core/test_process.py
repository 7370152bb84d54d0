"""One root for the five packages, and a clean environment for child processes."""

import os
import sys
from pathlib import Path

import pytest

from robot_rl.core.process import InstallationError, check_one_root, clean_environ

REPOSITORY = Path(__file__).resolve().parents[3]
GUARD = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"
LIBRARIES = "lib/python3.11/site-packages/ros_rcl_9f.libs"


@pytest.fixture
def bootstrapped(monkeypatch):
    """Sets LD_LIBRARY_PATH and the guard as the bootstrapper of the ROS wheels does."""

    def set_path(*entries):
        monkeypatch.setenv(GUARD, "1")
        monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(map(str, entries)))

    return set_path


def make_package(folder, name):
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()


def test_package_from_elsewhere_is_named_with_both_places(tmp_path, monkeypatch):
    make_package(tmp_path / "ours", "made_up_base")
    make_package(tmp_path / "theirs", "made_up_configs")
    monkeypatch.syspath_prepend(tmp_path / "ours")
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    with pytest.raises(InstallationError, match="made_up_absent cannot be found; install again"):
        check_one_root(["made_up_base", "made_up_absent"])
    with pytest.raises(InstallationError) as caught:
        check_one_root(["made_up_base", "made_up_configs"])
    assert str(caught.value).startswith(f"{tmp_path / 'theirs' / 'made_up_configs'} would be")
    assert f"own made_up_configs, which lies in {tmp_path / 'ours'}: rename" in str(caught.value)


def test_guard_and_added_libraries_are_removed_and_own_entries_keep_their_order(bootstrapped):
    added = [f"{sys.prefix}/{LIBRARIES}", f"{sys.prefix}/lib"]
    bootstrapped("/opt/ros/jazzy/lib", added[0], "/usr/local/cuda/lib64", added[1])
    environ = clean_environ()
    assert GUARD not in environ
    assert environ["LD_LIBRARY_PATH"] == "/opt/ros/jazzy/lib:/usr/local/cuda/lib64"


def test_libraries_of_another_environment_that_started_us_are_removed_too(bootstrapped, tmp_path):
    bootstrapped(tmp_path / LIBRARIES, tmp_path / "lib", "/usr/local/cuda/lib64")
    assert clean_environ()["LD_LIBRARY_PATH"] == "/usr/local/cuda/lib64"


def test_environment_reached_through_a_link_is_recognised(bootstrapped, tmp_path):
    # The bootstrapper resolves the ros_*.libs folders and leaves <prefix>/lib as it was spelt.
    (tmp_path / "real" / "lib").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    bootstrapped(tmp_path / "real" / LIBRARIES, tmp_path / "link" / "lib")
    assert "LD_LIBRARY_PATH" not in clean_environ()


def test_extra_variables_win_and_our_own_environment_is_left_alone(bootstrapped):
    bootstrapped(f"{sys.prefix}/lib")
    before = dict(os.environ)
    assert check_one_root() == REPOSITORY
    environ = clean_environ({"LD_LIBRARY_PATH": "/child", "ROS_DOMAIN_ID": "7"})
    assert (environ["LD_LIBRARY_PATH"], environ["ROS_DOMAIN_ID"]) == ("/child", "7")
    assert dict(os.environ) == before
