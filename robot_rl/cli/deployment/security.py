"""Keys and permissions of a deployment for SROS 2, made by `ros2 security` of a sourced ROS 2."""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hardware.ros.foreign_commands import absolute_name
from robot_rl.cli.deployment.options import PolicyOptions
from robot_rl.core.errors import ConfigError, RobotRLError
from robot_rl.training.storage.durable import storage_errors

_NAMESPACE, _SOURCE = "/robot", "/source"
"""Names that stand in the policy that is shipped."""


class SecurityError(RobotRLError):
    """Keys or permissions could not be made."""


@dataclass(kw_only=True)
class SecureOptions:
    """Options of `robot-rl secure`."""

    out: str = ""
    """Folder of the keystore."""
    namespace: str = "/robot"
    """Of the robot's topics; its enclave has the same name."""
    source: str = ""
    """Namespace of somebody else's node that is driven; none if empty."""
    domain: int = -1
    """ROS_DOMAIN_ID; -1 takes the environment's."""

    def __post_init__(self) -> None:
        if not self.out:
            raise ConfigError("where to? out=<folder of the keystore>")
        self.namespace = absolute_name("namespace", self.namespace)
        if self.source:
            self.source = absolute_name("source", self.source)
        self.domain = PolicyOptions(domain=self.domain).ros_domain


def policy_text(namespace: str, source: str = "") -> str:
    """The permissions that are shipped, for a namespace and that of a node that is driven."""
    text = files("hardware.ros").joinpath("package", "policy.xml").read_text(encoding="utf-8")
    head, _, link = text.partition('<profile ns="/robot" node="link">')
    if not source:
        head, link = head.rstrip() + "\n      ", link.partition("</profile>")[2].lstrip()
    text = head + ('<profile ns="/robot" node="link">' if source else "") + link
    text = text.replace(f'"{_NAMESPACE}"', f'"{namespace}"')
    names = {_NAMESPACE: namespace, _SOURCE: source}  # at once: one may be called as the other
    return re.sub(rf">({'|'.join(names)})/", lambda found: f">{names[found[1]]}/", text)


def secure(options: SecureOptions) -> int:
    """Write the policy, make keys and permissions, and say how security is turned on.

    Returns:
        Exit code: 0 if everything was made, 1 where there is no `ros2 security`, so that a person
        has to run what was printed.

    Raises:
        SecurityError: A command failed.
    """
    keystore, enclave = Path(options.out), options.namespace
    policy = keystore / "policy.xml"
    commands = [
        ["ros2", "security", "create_enclave", str(keystore), enclave],
        ["ros2", "security", "create_permission", str(keystore), enclave, str(policy)],
    ]
    if not (keystore / "private").is_dir():
        commands.insert(0, ["ros2", "security", "create_keystore", str(keystore)])
    with storage_errors("write", policy):
        keystore.mkdir(parents=True, exist_ok=True)
        policy.write_text(policy_text(enclave, options.source), encoding="utf-8")
    print(f"policy  {policy}")
    able, domain = shutil.which("ros2") is not None, str(options.domain)
    if not able:
        print("no ros2 command is here; source a ROS 2 with the package sros2, then run:")
    for command in commands:
        print(f"{'run' if able else '   '}     ROS_DOMAIN_ID={domain} {shlex.join(command)}")
        if able:
            done = subprocess.run(
                command, env={**os.environ, "ROS_DOMAIN_ID": domain}, capture_output=True, text=True
            )
            if done.returncode:
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                raise SecurityError(
                    f"'{shlex.join(command)}' failed: {' '.join(last) or 'it says nothing'}; "
                    "is the package sros2 installed beside ros2?"
                )
    print("in every terminal that deploys, watches or records the robot:")
    for name, value in (
        ("ROS_SECURITY_KEYSTORE", str(keystore.absolute())), ("ROS_SECURITY_ENABLE", "true"),
        ("ROS_SECURITY_STRATEGY", "Enforce"), ("ROS_SECURITY_ENCLAVE_OVERRIDE", enclave),
        ("ROS_DOMAIN_ID", domain),
    ):  # fmt: skip
        print(f"        export {name}={shlex.quote(value)}")
    return 0 if able else 1
