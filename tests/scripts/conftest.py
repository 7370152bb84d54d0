"""Commands called in this process, as the tests of `robot_rl.cli` call them."""

from tests.robot_rl.cli.conftest import command, domain, go2_bundle, here, refused

__all__ = ["command", "domain", "go2_bundle", "here", "refused"]
