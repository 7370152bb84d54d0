"""The package for colcon: what it declares, installs and starts."""

import os
import re
import runpy
import shlex
import tomllib
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
import setuptools

from robot_rl.cli.deployment.options import DeployOptions
from robot_rl.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "hardware" / "ros" / "package" / "robot_rl_deploy"
LAUNCHES = sorted((PACKAGE / "launch").iterdir())
WRITTEN_IN_CODE = re.compile(r'"((?:[a-z0-9]+_)+(?:msgs|srvs|interfaces))"')


def manifest() -> Xml.Element:
    return Xml.parse(PACKAGE / "package.xml").getroot()


def test_the_manifest_is_what_colcon_and_rosdep_ask_for():
    root = manifest()
    assert (root.tag, root.get("format")) == ("package", "3")
    for tag in ("name", "version", "description", "maintainer", "license"):
        assert root.findtext(tag), tag
    assert root.findtext("name") == PACKAGE.name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert root.findtext("version") == project["version"]
    assert root.findtext("license") == project["license"]
    assert root.findtext("export/build_type") == "ament_python"


def test_every_package_of_messages_in_the_code_is_a_dependency():
    sources = [*(ROOT / "hardware" / "ros").glob("*.py"), *(ROOT / "robot_rl/cli").rglob("*.py")]
    asked = {name for path in sources for name in WRITTEN_IN_CODE.findall(path.read_text())}
    assert {"sensor_msgs", "lifecycle_msgs", "tf2_msgs"} <= asked
    declared = {str(entry.text) for entry in manifest().findall("exec_depend")}
    assert asked <= declared
    started = {node.get("pkg") for path in LAUNCHES for node in Xml.parse(path).iter("node")}
    assert started <= declared


def test_commands_launch_files_and_marker_are_installed_where_ros2_looks(monkeypatch):
    asked = {}
    monkeypatch.setattr(setuptools, "setup", lambda **values: asked.update(values))
    monkeypatch.chdir(PACKAGE)
    runpy.run_path("setup.py")
    installed = dict(asked["data_files"])
    name = PACKAGE.name
    assert installed["share/ament_index/resource_index/packages"] == [f"resource/{name}"]
    assert installed[f"share/{name}/launch"] == [f"launch/{path.name}" for path in LAUNCHES]
    assert "scripts/deploy" in installed[f"lib/{name}"]
    for file in (file for files in installed.values() for file in files):
        assert (PACKAGE / file).is_file()
    for file in installed[f"lib/{name}"]:
        command = Path(file).name
        assert command in COMMANDS
        assert os.access(PACKAGE / file, os.X_OK)
        assert f'exec robot-rl {command} "$@"' in (PACKAGE / file).read_text()


@pytest.mark.parametrize("path", LAUNCHES, ids=lambda path: path.name.partition(".")[0])
def test_a_launch_file_says_what_it_takes_and_asks_for_known_options(path):
    root = Xml.parse(path).getroot()
    arguments = {str(arg.get("name")): arg for arg in root.findall("arg")}
    assert {"bundle", "robot", "driver", "namespace", "seconds", "options"} <= {*arguments}
    assert all(arg.get("description") for arg in arguments.values())
    assert [name for name, arg in arguments.items() if arg.get("default") is None] == ["bundle"]
    text = path.read_text()
    assert {*re.findall(r"\$\(var (\w+)\)", text)} == {*arguments}
    deploy = root.find("executable")
    assert deploy is not None
    *shell, script, called = shlex.split(str(deploy.get("cmd")).partition(" bundle=")[0])
    assert (shell, called) == (["sh", "-c"], "deploy")
    assert script.endswith('exec robot-rl deploy "$@" $OPTIONS')
    options = re.findall(r"(\w+)=\$\(var (\w+)\)", str(deploy.get("cmd")))
    known = {entry.name: entry.default for entry in fields(DeployOptions)}
    for option, argument in options:
        assert option == argument
        default = arguments[argument].get("default")
        if option not in ("bundle", "namespace"):
            assert type(known[option])(default) == known[option]
