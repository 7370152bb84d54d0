"""Console in the browser beside a running robot process: `robot-rl console`; `--help` says more."""

import asyncio
import contextlib
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardware.console.address import check_address
from hardware.control.ipc import channel_path
from hardware.control.monitors import SafetyLimits
from hardware.control.process import RobotChannels
from hardware.control.request_socket import is_listening
from robot_rl.cli.command_line import read_options
from robot_rl.core.errors import ConfigError, RobotRLError
from robot_rl.core.robot import RobotSpec

if TYPE_CHECKING:  # aiohttp is an extra
    from hardware.console.server import ConsoleServer, ServerConfig
    from hardware.console.teleop_thread import Teleoperator
    from hardware.console.video import FrameSource
    from hardware.teleop.input_device import HostDevice
    from policies.cameras import CameraInput
    from robot_rl.cli.deployment.options import DeployOptions
    from robot_rl.cli.deployment.plan import Deployment

_LOOK_SECONDS = 0.5
"""Time between two looks whether it is time to end [s]."""
HELP = """Opens a console in the browser beside a robot process that runs on this computer.

usage: robot-rl console [option=value ...]

options:
  namespace=       of the robot's topics; the only robot there is, if empty
  domain=-1        its ROS_DOMAIN_ID; -1 takes any on this computer
  channels=        name of its channels, instead of both
  robot=           name of the robot, where robot-rl deploy did not start it: brings its limits
  host=127.0.0.1   address to listen on; one that other computers reach gets TLS, with a
                   certificate that is made here once and whose fingerprint is printed
  port=8765        0 for any free one
  out=             folder of the run for the log of actions and the pictures of the review page;
                   runs/console_<robot> if empty
  view=true        false draws no robot
  stick=           device of this computer that leads the robot while the operator's page is open:
                   gamepad:/dev/input/by-id/...-event-joystick, or spacemouse:/dev/input/by-id/...
  camera.<name>.topic=   a camera over ROS 2: sensor_msgs/Image, or CompressedImage where the name
                   of the topic ends with /compressed; those that a deployed policy sees are shown
                   by themselves, with the part that it sees

The console shows the robot against its limits, stops, holds, arms and hands over, labels episodes
where an actor runs, and plots what the learner says. Beside robot-rl deploy a person takes the
robot over and gives it back: the end effector of an arm, the place of a drone, the velocity that a
policy on legs is asked for. It prints an address with a token for one browser; whoever has one may
look on and stop, one page at a time commands. Space and Esc stop. This stop
is software: it is no safety-rated emergency stop, which a real robot needs besides.

It needs ROS 2 for cameras alone. It may come and go while the robot runs; Ctrl-C ends it alone.

examples:
  robot-rl deploy bundle=runs/.../bundle          in one terminal, and in another:
  robot-rl console
  robot-rl console host=192.168.1.20 port=8765
  robot-rl console stick=spacemouse:/dev/input/by-id/usb-3Dconnexion_SpaceMouse-event-mouse
  robot-rl console camera.wrist.topic=/wrist/image_raw/compressed"""


_CAMERA = re.compile(r"^camera\.([^.=]+)\.topic=(.+)$")
"""A camera on the command line, as `robot-rl learn` takes it too."""


@dataclass(kw_only=True)
class ConsoleOptions:
    """Options of `robot-rl console`."""

    namespace: str = ""
    """Namespace of the robot's topics."""
    domain: int = -1
    """ROS_DOMAIN_ID; any if -1."""
    channels: str = ""
    """Name of the robot's channels."""
    robot: str = ""
    """Name of the robot."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8765
    """Of the page."""
    out: str = ""
    """Folder of the run."""
    view: bool = True
    """Draw the robot."""
    stick: str = ""
    """Device of this computer that leads the robot."""
    camera: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a camera -> its topic."""


def run(words: Sequence[str]) -> None:
    """Serve the console until Ctrl-C."""
    options = read_options(ConsoleOptions, [_CAMERA.sub(r"camera={\1:\2}", one) for one in words])
    config = server_config(options.host, options.port)
    name = options.channels or _running_robot(options)
    known = known_robot(options, name)
    if known.spec is None:
        print("the robot's joints are not shown: give robot=", flush=True)
    domain = options.domain if options.domain >= 0 else known.domain
    with cameras_of(
        known.config if options.view else None, name, topics={**known.topics, **options.camera},
        domain=domain,
    ) as cameras:  # fmt: skip
        serve_console(
            name, known.spec, config, folder=Path(options.out or f"runs/console_{name}"),
            cameras=cameras, seen=known.seen, teleoperator=known.hand, limits=known.limits,
            stick=open_stick(options.stick, known.hand),
        )  # fmt: skip


def serve_console(
    name: str, spec: RobotSpec | None, config: "ServerConfig", *, folder: Path,
    cameras: "Sequence[FrameSource]" = (), seen: "Mapping[str, CameraInput] | None" = None,
    teleoperator: "Teleoperator | None" = None, limits: SafetyLimits | None = None,
    stick: "HostDevice | None" = None, over: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Serve the console of a robot until SIGINT, SIGTERM or `over`; prints its addresses.

    Args:
        name: Of the robot's channels.
        spec: Its description; None shows no joints.
        folder: Of the run, for the log of actions and the timelines of episodes.
        cameras: Shown on the page.
        seen: What a policy sees of them, by name.
        teleoperator: A person's hand; it gets a thread of its own and is closed. None where nobody
            can take over.
        limits: Of the robot's loop; the usual ones if None.
        stick: Device of this computer that leads the robot; it is closed with the console.
        over: True when it is time to end; asked now and then.
    """
    from hardware.console.operation import Console
    from hardware.console.robot_view import RobotView
    from hardware.console.server import ConsoleServer
    from hardware.console.teleop_thread import TeleopThread
    from hardware.console.timeline import TimelineReader
    from hardware.console.video import make_streams
    from hardware.teleop.actor_socket import ActorConnection

    console = Console(
        RobotView(name, spec, limits), ActorConnection(name), streams=make_streams(cameras, seen),
        teleoperator=None if teleoperator is None else TeleopThread(teleoperator),
        host_stick=stick, folder=folder,
    )  # fmt: skip
    server = ConsoleServer(
        console, config, reader=TimelineReader(folder),
        on_token=lambda url: print(f"for another browser:  {url}", flush=True),
    )  # fmt: skip
    print(f"robot    {name}\nlog      {folder / 'console_actions.jsonl'}", flush=True)
    asyncio.run(_serve(server, over))
    print(f"shift    {console.log.summary}", flush=True)


async def _serve(server: "ConsoleServer", over: Callable[[], bool]) -> None:
    ends = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    await server.start()
    try:
        print(f"console  {server.new_url()}", flush=True)
        while not (ends.is_set() or over()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ends.wait(), _LOOK_SECONDS)
    finally:
        await server.stop()


def open_stick(text: str, hand: "Teleoperator | None") -> "HostDevice | None":
    """Device of this computer by its option; None where it is empty.

    Raises:
        ConfigError: There is no such kind, or nobody can take the robot over.
        DeviceGoneError: It cannot be opened.
    """
    if not text:
        return None
    from hardware.teleop.input_device import open_device

    if hand is None:
        raise ConfigError(f"stick={text} would lead the robot, and nobody can take it over here")
    return open_device(text)


def server_config(host: str, port: int) -> "ServerConfig":
    """Address to listen on, with a certificate where other computers reach it.

    Raises:
        ConfigError: It is none, or no certificate can be made.
    """
    from hardware.console.certificate import ensure_certificate, fingerprint, installation_folder
    from hardware.console.server import ServerConfig, is_loopback

    check_address(host, port)  # before a certificate is made for it
    if is_loopback(host):
        return ServerConfig(host=host, port=port)
    certificate, key = ensure_certificate(installation_folder(), host)
    print(f"certificate  {certificate}\nSHA-256      {fingerprint(certificate)}", flush=True)
    return ServerConfig(host=host, port=port, certificate=certificate, key=key)


def _running_robot(options: ConsoleOptions) -> str:
    """Name of the channels of the robot that is meant.

    Raises:
        ConfigError: There is none, or several.
    """
    suffix = channel_path(RobotChannels("x").status).name.removeprefix("robot_rl.x")
    files = sorted(channel_path("x").parent.glob(f"robot_rl.*{suffix}"))
    names = [file.name.removeprefix("robot_rl.").removesuffix(suffix) for file in files]
    names = [name for name in names if is_listening(RobotChannels(name).operator)]  # not killed
    wanted = options.namespace.strip("/").replace("/", ".")
    found = [
        name
        for name in names
        if wanted in ("", name, name.rpartition(".")[0])
        and options.domain in (-1, *_number(name.rpartition(".")[2]))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            "no robot process runs on this computer"
            + (f" under that name; running: {', '.join(names)}" if names else "")
            + "; start one with robot-rl deploy, or name its channels with channels="
        )
    raise ConfigError(f"{len(found)} robots run here; say which: channels={found[0]}")


def _number(word: str) -> tuple[int, ...]:
    return (int(word),) if word.isdecimal() else ()


@dataclass(frozen=True, kw_only=True)
class KnownRobot:
    """Robot beside which a console opens, as far as it is known."""

    spec: RobotSpec | None = None
    config: Any = None
    limits: SafetyLimits | None = None
    hand: "Teleoperator | None" = None
    topics: Mapping[str, str] = field(default_factory=dict[str, str])
    """Cameras of a deployed policy, each with its absolute topic."""
    seen: "Mapping[str, CameraInput] | None" = None
    """Parts of their pictures that the policy sees."""
    domain: int | None = None
    """ROS_DOMAIN_ID of the deployment."""


def known_robot(options: ConsoleOptions, name: str) -> KnownRobot:
    """Facts that a deployment left, or the name of the robot tells."""
    if channel_path(RobotChannels(name).deployment).exists():
        from robot_rl.cli.deployment.person import make_hand, running_deployment

        try:
            plan = running_deployment(name)
            spec, config, limits = plan.robot, plan.config.robot, plan.limits()
            topics, seen = pictures_of(plan), plan.runner.spec.cameras
        except RobotRLError as error:  # the console can stop the robot nevertheless
            print(f"the deployment is not shown, and nobody can take it over: {error}", flush=True)
            return KnownRobot()
        try:
            hand = make_hand(plan)
        except ConfigError as error:
            print(f"nobody can take it over: {error}", flush=True)
            hand = None
        return KnownRobot(
            spec=spec, config=config, limits=limits, hand=hand, topics=topics,
            seen=seen, domain=plan.domain,
        )  # fmt: skip
    robot = options.robot or name.rpartition(".")[0].rpartition(".")[2]
    config = _config_of(robot, must=bool(options.robot))
    return KnownRobot(spec=None if config is None else config.spec, config=config)


def pictures_of(plan: "Deployment[DeployOptions]") -> dict[str, str]:
    """Absolute topics of the cameras of a deployment; none in a shell without ROS 2."""
    topics = plan.camera_topics
    if not topics:
        return {}
    from hardware.ros.compat import inspect_environment

    if inspect_environment().rclpy is None:  # the console can stop the robot nevertheless
        print("the cameras of the policy are not shown: ROS 2 is not found here", flush=True)
        return {}
    return {
        camera: topic if topic.startswith("/") else f"{plan.namespace}/{topic}"
        for camera, topic in topics.items()
    }


def _config_of(robot: str, *, must: bool) -> Any:
    """Config of a robot; None where there is none of this name, or no training extra."""
    try:
        from configs.compose import compose

        return compose([f"robot={robot}"]).config.robot
    except (ConfigError, ModuleNotFoundError):
        if must:
            raise
        return None


@contextmanager
def cameras_of(
    robot: Any, name: str, *, topics: Mapping[str, str] | None = None, domain: int | None = None
) -> "Iterator[list[FrameSource]]":
    """Cameras over ROS 2, then the drawing of a robot that is known.

    Args:
        robot: Config of the robot; None draws nothing.
        name: Of its channels.
        topics: Name of each camera -> topic of its pictures.
        domain: ROS_DOMAIN_ID; None takes the environment's.

    Raises:
        RosError: There are topics, and no ROS 2 here.
    """
    with contextlib.ExitStack() as opened:
        cameras: list[FrameSource] = []
        if topics:
            from hardware.ros.image_topic import ImageTopics
            from hardware.ros.session import RosSession

            session = RosSession("console", domain=domain)
            heard = ImageTopics(session, topics, _say)
            cameras += opened.enter_context(contextlib.closing(heard)).cameras
        if robot is not None:
            from robot_rl.cli.robot_camera import RobotCamera

            drawing = RobotCamera(robot, name, _say)
            cameras.append(opened.enter_context(contextlib.closing(drawing)))
        yield cameras


def _say(line: str) -> None:
    print(line, flush=True)
