"""Options that a robot process leaves for consoles: whole, private, and gone with it."""

import json
import os
import stat

import pytest

from hardware.control.ipc import channel_path, remove_dead_channel
from robot_rl.cli.deployment.options_file import left_beside, read_beside
from robot_rl.core.errors import ConfigError


def test_options_are_there_as_long_as_the_process_and_only_for_its_user(tmp_path):
    path = tmp_path / "robot"
    with left_beside(path, {"bundle": "/b"}):
        assert read_beside(path) == {"bundle": "/b"}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_put_in_their_place_stays(tmp_path):
    path = tmp_path / "robot"
    with left_beside(path, {"bundle": "/first"}), left_beside(path, {"bundle": "/second"}):
        assert read_beside(path)["bundle"] == "/second"
    assert list(tmp_path.iterdir()) == []
    first = left_beside(path, {"bundle": "/first"})
    first.__enter__()
    second = left_beside(path, {"bundle": "/second"})
    second.__enter__()
    first.__exit__(None, None, None)
    assert read_beside(path)["bundle"] == "/second"
    second.__exit__(None, None, None)


def test_a_file_of_a_living_process_does_not_count_as_dead():
    name = f"test-options-{os.getpid()}"
    with left_beside(channel_path(name), {"bundle": "/b"}):
        remove_dead_channel(name)
        assert read_beside(channel_path(name)) == {"bundle": "/b"}


def test_links_and_damage_are_refused_in_a_sentence(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text(json.dumps({"bundle": "/theirs"}))
    link.symlink_to(target)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_beside(link)
    with left_beside(link, {"bundle": "/ours"}):
        assert json.loads(target.read_text()) == {"bundle": "/theirs"}, "a link is replaced"
    target.write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        read_beside(target)
    target.write_text("[]")
    with pytest.raises(ConfigError, match="expected options"):
        read_beside(target)
