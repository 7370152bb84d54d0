"""`robot-rl secure`: the policy of a namespace, and what `ros2 security` is asked for."""

import os
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest

from robot_rl.cli.deployment.security import policy_text
from robot_rl.cli.main import main

TOOL = """#!/bin/sh
echo "$ROS_DOMAIN_ID $*" >> "{log}"
case "$2" in create_keystore) mkdir "$3/private";; esac
{more}
"""


@pytest.fixture
def ros2(tmp_path, monkeypatch):
    """A stand-in for the command of a sourced ROS 2; returns what it was asked."""
    folder, log = tmp_path / "bin", tmp_path / "asked"
    folder.mkdir()

    def make(more: str = "") -> Path:
        (folder / "ros2").write_text(TOOL.format(log=log, more=more))
        (folder / "ros2").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return log

    return make


def exit_code(*words: str) -> int:
    try:
        main(["secure", *words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def names_in(text: str) -> list[str]:
    root = Xml.fromstring(text)
    paths = [str(one.get(key)) for one in root.iter() for key in ("path", "ns") if one.get(key)]
    return [*paths, *(str(one.text) for one in root.iter() if one.tag in ("topic", "service"))]


def test_keys_are_made_once_and_permissions_for_every_robot(ros2, tmp_path, capsys):
    log, keys = ros2(), tmp_path / "keys"
    assert exit_code(f"out={keys}", "namespace=go2", "domain=5") == 0
    assert exit_code(f"out={keys}", "namespace=/arm", "source=/vendor", "domain=5") == 0
    policy = keys / "policy.xml"
    assert log.read_text().splitlines() == [
        f"5 security create_keystore {keys}",
        f"5 security create_enclave {keys} /go2",
        f"5 security create_permission {keys} /go2 {policy}",
        f"5 security create_enclave {keys} /arm",
        f"5 security create_permission {keys} /arm {policy}",
    ]
    assert policy.read_text() == policy_text("/arm", "/vendor")
    told = capsys.readouterr().out
    assert f"export ROS_SECURITY_KEYSTORE={keys}" in told
    assert "export ROS_SECURITY_ENCLAVE_OVERRIDE=/arm" in told


def test_without_ros2_the_commands_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert exit_code(f"out={tmp_path / 'keys'}", "domain=3") == 1
    told = capsys.readouterr().out
    assert f"ROS_DOMAIN_ID=3 ros2 security create_keystore {tmp_path / 'keys'}" in told
    assert (tmp_path / "keys" / "policy.xml").is_file()


def test_a_command_that_fails_is_named_with_its_last_line(ros2, tmp_path, capsys):
    ros2("echo 'no module named sros2' >&2; exit 3")
    assert exit_code(f"out={tmp_path / 'keys'}") == 2
    told = capsys.readouterr().err
    assert "create_keystore" in told
    assert "no module named sros2" in told


@pytest.mark.parametrize("words", [(), ("out=keys", "namespace=9a"), ("out=keys", "domain=300")])
def test_what_cannot_be_meant_is_refused_before_anything_is_written(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert exit_code(*words) == 2
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("source", ["/robot", "/robot/driver"])
def test_a_source_below_the_shipped_namespace_keeps_its_own_topics(source):
    names = names_in(policy_text("/go2", source))
    assert f"{source}/*" in names
    own = names_in(policy_text("/go2", "/vendor"))
    assert [name.replace(source, "/vendor") for name in names] == own
    assert "/source/*" in names_in(policy_text("/source", "/source"))


@pytest.mark.parametrize("source", ["", "/vendor"])
def test_the_policy_names_the_namespace_and_nobody_elses(source):
    names = names_in(policy_text("/lab/go2", source))
    assert not any(name.startswith(("/robot", "/source")) for name in names)
    assert "/lab/go2/loop/*" in names
    assert ("/vendor/*" in names) == bool(source)
