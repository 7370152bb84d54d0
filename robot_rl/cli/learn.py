"""Learning on a robot: `robot-rl learn task=reach`; `--help` lists the choices."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from robot_rl.core.errors import ConfigError, NoSpaceError, StorageError
from robot_rl.training.storage.durable import replace_json

if TYPE_CHECKING:
    from configs.schema import RunConfig
    from robot_rl.cli.learning.options import LearnOptions
    from robot_rl.training.runs.run_folder import RunFolder

HELP = """Learns on a robot while it works: off-policy, with demonstrations and help by persons.

usage: robot-rl learn [group=name ...] [field=value ...]
       robot-rl learn run=runs/<run> [field=value ...]

task:  {tasks}
robot: {robots}

options:
  run=             folder of a run of this command to go on with, or latest; a new run if empty
  role=all         all: learner and robot on this computer; learner or robot: that part alone
  driver=twin      robot that is learned on: twin, a simulated one behind the loop, limits and stops
                   of a real one; ros2, an arm behind somebody else's ROS 2 node, behind the same
                   loop; sim, an environment with nothing of that; or a driver of a plug-in
  driver_options={}              options of a plug-in's driver, such as its port
  person=console   who helps: console, an operator at a page in the browser, whose address is
                   printed; simulated, who knows task=peg and makes a person's mistakes; none
  host=127.0.0.1 port=8765   of the console; one that other computers reach gets TLS
  stick=           device of this computer that leads the robot while the operator's page is open:
                   gamepad:/dev/input/by-id/...-event-joystick, or spacemouse:/dev/input/by-id/...;
                   is not kept with the run
  camera.<name>.topic=   a camera of a real robot over ROS 2, which the console shows and the policy
                   sees where env.cameras names it: sensor_msgs/Image, or CompressedImage where
                   the name ends with /compressed
  address=         of the learner: where it listens, or where the robot finds it;
                   127.0.0.1:50151 if empty, any free port with role=all
  name=robot       name of the robot; several at one learner need different ones
  pace=true        of driver=sim: false lets it step as fast as it can
  token_file=      file with a word that both sides know; needed beyond this computer
  certificate= key=   files of the learner's TLS pair (PEM); the robot needs the certificate alone

of driver=twin, whose actions displace the end effector, and as ros2.led_by=... of driver=ros2 and
direct.led_by=... of a plug-in's driver:
  twin.led_by=pose              joint: joint targets instead, as the task's config says
  twin.translation=0.01 twin.rotation=0.05   of an action of 1 in a control period [m], [rad]
  twin.reach=0                  half-width of the workspace around the task's beginning [m]; 0: none
  twin.gripper=false            one more action moves the gripper
  twin.reset.tasks=             steps between two episodes, each a name with its fields

of driver=twin alone:
  twin.success_reward=          reward 1 and an end from this reward of the task on, and 0 before;
                                the task's own rewards if empty

of driver=ros2, whose episodes a person at the console judges and begins, and from domain on of a
plug-in's driver too, as direct.robot_file=...:
  ros2.source=/ ros2.topics={} ros2.command= ros2.joints=[]   its node, as robot-rl deploy has it
  ros2.namespace=               where goal/<name> and sensed/<name> are heard
  ros2.domain=-1                ROS_DOMAIN_ID of the node, and of cameras
  ros2.drawn_pictures=false     true: the cameras are a simulator's, whose pictures have no noise
  ros2.robot_file=              bounds of the robot, its topics, stop button and cameras
  ros2.goal={}                  goals that always hold
  direct.sensed={}                further inputs that always hold, such as the place of a fixture
  ros2.place.at= ros2.place.radius=   place of the end effector at which an episode succeeds by
                                itself [m], base axes; ros2.place.input=goal/<name> moves with that

most used fields:
  training.prior.run=demos      demonstrations: half of every minibatch (training.prior.share)
  training.offline.updates=500  updates from them alone, before the robot moves (silri, expo, wsrl)
  env.cameras=[wrist] learner.images.encoder=conv   cameras, and a policy that sees them
  training.total_steps=1e5      steps of the robots after which it ends
  training.updates_per_step=20  updates per step of the robot, at most
  online.start_steps=300        steps before the first update; what training.random_steps and
                                training.warm_up_steps are to robot-rl train
  online.quota_mb=2000          disk for the robot's steps while the learner is away
  training.start.run=runs/...   begin with the learner of another run

Everything is in the run's folder. Learner and robot may be killed at any time and started again
with run=...: no step is lost, none is learned from twice. Ctrl-C ends both in order.

examples:
  robot-rl teleop experiment=peg_with_person twin.success_reward=1 out=datasets/peg
  robot-rl learn experiment=peg_with_person twin.success_reward=1 training.prior.run=datasets/peg
  robot-rl learn experiment=peg_with_person driver=ros2 ros2.source=/arm ros2.reach=0.15 \\
      camera.wrist.topic=/wrist/image_raw
  robot-rl learn run=latest
  robot-rl learn role=learner task=reach address=0.0.0.0:50151 token_file=token \\
      certificate=certificate.pem key=key.pem
  robot-rl learn role=robot task=reach address=learner.lan:50151 token_file=token \\
      certificate=certificate.pem"""

_OF_CALL = ("run", "role", "address", "stick")
"""Options that belong to a call, not to a run."""
_DEFAULTS = ("learner=rlpd", "num_envs=1", "device=cpu")
"""Choices of this command where nothing else is said."""
_LOCK_SECONDS = 10.0
"""Longest wait for a killed process of the same run to be gone."""
_NICENESS = 10
"""Of a learner beside its robot: what is busy in time comes first."""


def run(words: Sequence[str]) -> int:
    """Learn as the command line says; returns the exit code."""
    from configs.compose import read_options
    from robot_rl.cli.learning.options import DEFAULT_ADDRESS, LearnOptions, Role

    words = _with_saved(words)
    options, rest = read_options(LearnOptions, words)
    options.security()
    if options.role in (Role.all, Role.robot):
        return _supervise(options, words, rest)
    options = replace(options, address=options.address or DEFAULT_ADDRESS)
    if options.role is Role.learner:
        return _run_learner(options, words, rest)
    folder, config = _folder(options, rest, writes=False)
    with folder.used():
        _run_part(folder, config, options)
    return 0


def _run_part(folder: "RunFolder", config: "RunConfig", options: "LearnOptions") -> None:
    """One process of the robot's side, until it is asked to end."""
    from robot_rl.cli.learning.options import Role
    from robot_rl.cli.learning.supervisor import orphaned

    over = _asked_to_end(orphaned)
    if options.role is Role.actor:
        from robot_rl.cli.learning.actor import run_actor

        run_actor(folder, config, options, over)
    elif options.role is Role.loop:
        from robot_rl.cli.learning.robot_side import run_loop

        run_loop(config, options, over)
    elif options.role is Role.cameras:
        from robot_rl.cli.learning.robot_side import run_cameras

        run_cameras(config, options, over)
    elif options.role is Role.link:
        from robot_rl.cli.learning.robot_side import run_link

        run_link(config, options, over)
    elif options.role is Role.estop:
        from robot_rl.cli.learning.robot_side import run_estop

        run_estop(options, over)
    elif options.role is Role.console:
        from robot_rl.cli.learning.robot_side import run_console

        run_console(folder.path, config, options, over)
    else:
        from robot_rl.cli.learning.robot_side import run_person

        run_person(config, options, over)


def _with_saved(words: Sequence[str]) -> list[str]:
    """The command line behind the options that its run was begun with.

    Options of another driver than that of this call are left out.
    """
    from robot_rl.cli.components import run_path
    from robot_rl.cli.learning.options import SAVED, options_of_others

    named = [word.partition("=")[2] for word in words if word.startswith("run=")]
    if not named or not named[-1]:
        return [*words]
    root = [word.partition("=")[2] for word in words if word.startswith("runs=")]
    run = run_path(named[-1], *root[-1:], of_learn=True)
    if named[-1] == "latest":  # where to look for it, then; no run moves
        words = [word for word in words if not word.startswith(("run=", "runs="))]
        words = [*words, f"run={run}"]
    path = run / SAVED
    if not path.exists():
        return [*words]
    all_words = [*json.loads(path.read_text()), *words]
    drivers = [word.partition("=")[2] for word in all_words if word.startswith("driver=")]
    others = options_of_others(drivers[-1] if drivers else "twin")
    return [word for word in all_words if word in words or not word.startswith(others)]


def _supervise(options: "LearnOptions", words: Sequence[str], rest: Sequence[str]) -> int:
    """The processes of one side, or of both."""
    from hardware.console.address import check_address
    from hardware.teleop.input_device import open_device
    from robot_rl.cli.learning.options import DEFAULT_ADDRESS, Role

    options.security().check_address(
        options.address or DEFAULT_ADDRESS, serves=options.role is Role.all
    )
    if options.stick:
        open_device(options.stick).close()
    if Role.console in options.parts:
        check_address(options.host, options.port)
    with _only_one_of(options):
        folder, config = _folder(options, rest)
        if options.role is Role.all and _is_done(folder, config):
            folder.close()
            return 0
        with folder.used():
            folder.close()  # for the learner
            return _supervise_parts(folder.path, config, options, words, rest)


@contextmanager
def _only_one_of(options: "LearnOptions") -> Iterator[None]:
    """Hold the name of the robot on this computer; its processes meet by that name.

    Raises:
        ConfigError: Another process holds it.
    """
    from hardware.control.ipc import ChannelBusyError, SharedMemoryReader, SharedMemoryWriter
    from hardware.control.process import RobotChannels

    if options.driver == "sim":  # the whole robot is in one process
        yield
        return
    channel = RobotChannels(options.channels).launcher
    try:
        holder = SharedMemoryWriter(channel, 1)
    except ChannelBusyError:
        reader = SharedMemoryReader(channel, 1)
        told = reader.newest_message()
        reader.close()
        pid = f" (process {told.values[0]:.0f})" if told else ""
        raise ConfigError(
            f"another robot-rl learn{pid} has the robot '{options.name}' on this computer; end "
            "that one, or give this robot another name: name=..."
        ) from None
    try:
        holder.write([os.getpid()], time.monotonic())
        yield
    finally:
        holder.close()


def _supervise_parts(
    folder: Path, config: "RunConfig", options: "LearnOptions", words: Sequence[str],
    rest: Sequence[str],
) -> int:  # fmt: skip
    """The processes, as they work on the run in `folder`."""
    from hardware.control.process import RobotChannels
    from robot_rl.cli.learning.options import DEFAULT_ADDRESS, Role
    from robot_rl.cli.learning.supervisor import supervise

    kept = _keep_options(folder, options, words, rest)
    roles = list(options.parts)
    if options.driver == "twin" and config.env.cameras:
        roles.insert(roles.index(Role.actor), Role.cameras)
    address = options.address or DEFAULT_ADDRESS
    if options.role is Role.all:
        roles.insert(0, Role.learner)
        address = options.address or f"127.0.0.1:{_free_port()}"
    call = [f"run={folder}", f"address={address}", *kept, *(rest if options.run else ())]
    call += [f"stick={options.stick}"] if options.stick else []
    part = "" if options.role is Role.all else f"role={options.role.value} address={address} "
    print(f"starts the {', '.join(role.value for role in roles)}; Ctrl-C ends them in order")
    print(f"learns in {folder}; go on later with: robot-rl learn {part}run={folder}", flush=True)
    try:
        return supervise({role.value: ["learn", f"role={role.value}", *call] for role in roles})
    finally:
        RobotChannels(options.channels).remove_dead()  # of processes that were killed


def _keep_options(
    folder: Path, options: "LearnOptions", words: Sequence[str], rest: Sequence[str]
) -> list[str]:
    """Options of the run, kept by it from its beginning: what actions mean, and how it goes on."""
    from robot_rl.cli.learning.options import SAVED

    kept = [word for word in words if word not in rest and word.partition("=")[0] not in _OF_CALL]
    if not (folder / SAVED).exists():
        replace_json(folder / SAVED, kept)
    return kept


def _run_learner(options: "LearnOptions", words: Sequence[str], rest: Sequence[str]) -> int:
    """The learner; a full disk ends it alone, and not the robot beside it."""
    from robot_rl.cli.learning.supervisor import EXIT_AGAIN, is_supervised

    if is_supervised():  # the robot is on this computer, and its processes come first
        os.nice(_NICENESS)
    try:
        return _learn(options, words, rest)
    except NoSpaceError as error:
        if not is_supervised():
            raise
        print(
            f"error: the learner ends: {error}. The robot goes on with the weights that it has; "
            "its steps wait in its spool, and where that has no room either it holds",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        return EXIT_AGAIN


def _learn(options: "LearnOptions", words: Sequence[str], rest: Sequence[str]) -> int:
    from robot_rl.cli.learning.learner import run_learner
    from robot_rl.cli.learning.supervisor import orphaned

    options.security().check_address(options.address, serves=True)
    folder, config = _folder(options, rest)
    with folder:
        if _is_done(folder, config):
            return 0
        _keep_options(folder.path, options, words, rest)
        run_learner(folder, config, options, orphaned)
    return 0


def _is_done(run: "RunFolder", config: "RunConfig") -> bool:
    """True, and told, if all steps of a run have come and it has learned from them."""
    from robot_rl.cli.resume import say_done
    from robot_rl.training.runs.run_folder import RunState

    status, total = run.status(), config.training.total_steps
    if status.state is not RunState.FINISHED or status.step < total:
        return False
    bundle = f"put it into a bundle with: robot-rl export run={run.path}"
    say_done(run.path, status.step, total, "learn longer", bundle)
    return True


def _asked_to_end(orphaned: Callable[[], bool]) -> Callable[[], bool]:
    """True once Ctrl-C or SIGTERM has come, or the supervisor is gone."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: asked.append(number))
    return lambda: bool(asked) or orphaned()


def _folder(
    options: "LearnOptions", rest: Sequence[str], *, writes: bool = True
) -> tuple["RunFolder", "RunConfig"]:
    """The run's folder, made where none is named, and its configuration."""
    from configs.compose import compose, to_plain
    from robot_rl.cli.components import keep_base, kept_base, run_name, run_path
    from robot_rl.cli.learning.environment import check_run
    from robot_rl.cli.resume import resumed_config
    from robot_rl.training.runs.provenance import collect_provenance
    from robot_rl.training.runs.run_folder import RunFolder

    if options.run:
        path = run_path(options.run, of_learn=True)
        folder = RunFolder.open(path)
        if not folder.is_of_learn:
            raise ConfigError(
                f"{path} is no run of robot-rl learn, which goes on with its own alone; resume it "
                f"with: robot-rl train resume={path}; or begin a new run with what it has learned: "
                f"training.start.run={path}"
            )
        folder = _opened(path) if writes else folder
        return folder, kept_base(folder, resumed_config(folder, rest))
    composition = compose([*_defaults(rest), *rest], beside_robots=True)
    config = composition.config
    if config.num_envs != 1:
        raise ConfigError(f"num_envs={config.num_envs} was asked for; a robot is one: num_envs=1")
    check_run(config, options, rest)
    plain, name = to_plain(config), run_name(config, composition.chosen)
    origin = collect_provenance(plain, seed=config.seed, device=config.device)
    folder = RunFolder.create(config.runs, name, plain, origin)
    keep_base(folder, config)
    if not writes:
        folder.close()
    return folder, config


def _defaults(words: Sequence[str]) -> list[str]:
    """Choices of this command of which neither the words nor their experiment say anything."""
    from configs.catalog import experiment_groups

    said = dict(word.split("=", 1) for word in words if "=" in word)
    known = said.keys() | experiment_groups(said.get("experiment", ""))
    return [word for word in _DEFAULTS if word.partition("=")[0] not in known]


def _opened(path: Path) -> "RunFolder":
    """A run to write; waits a little for a killed process to let go of it."""
    from robot_rl.cli.learning.supervisor import is_supervised
    from robot_rl.training.runs.run_folder import RunFolder

    end = time.monotonic() + (_LOCK_SECONDS if is_supervised() else 0.0)
    while True:
        try:
            return RunFolder.open(path, write=True)
        except StorageError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
