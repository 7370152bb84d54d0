"""Command lines of `key=value`, and the way a command ends.

A person's mistake is one sentence and exit code 2, never a traceback. Commands import their parts
inside this guard: help is there at once, and a package that is not installed is a sentence too.
"""

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TextIO, TypeVar, get_args, get_origin, get_type_hints

from robot_rl.core.errors import ConfigError, MissingExtraError, RobotRLError, unknown_name

Options = TypeVar("Options")

EXIT_USAGE = 2
"""Exit code of a request that cannot be met."""
EXIT_INTERRUPTED = 130
"""Ctrl-C, as shells count it (128 + SIGINT)."""

_EXTRAS = {
    # module: the package that brings it, and the extra of ours that brings that
    "torch": ("torch", "train"),
    "hydra": ("hydra-core", "train"),
    "omegaconf": ("omegaconf", "train"),
    "yaml": ("pyyaml", "train"),
    "rich": ("rich", "train"),
    "psutil": ("psutil", "train"),
    "safetensors": ("safetensors", "train"),
    "matplotlib": ("matplotlib", "train"),
    "onnx": ("onnx", "train"),
    "onnxscript": ("onnxscript", "train"),
    "onnxruntime": ("onnxruntime", "train"),
    "warp": ("warp-lang", "sim"),
    "mujoco": ("mujoco", "sim"),
    "av": ("av", "sim"),
    "gymnasium": ("gymnasium", "sim"),
    "viser": ("viser", "ui"),
    "aiohttp": ("aiohttp", "ui"),
    "pyarrow": ("pyarrow", "data"),
    "h5py": ("h5py", "data"),
    "rosbags": ("rosbags", "record"),
    "rclpy": ("ros-kilted-rclpy", "ros2"),
    "ray": ("ray", "cluster"),
    "grpc": ("grpcio", "link"),
    "hydra_plugins": ("hydra-joblib-launcher", "sweep"),
}


@contextmanager
def exit_with_sentence(command: str = "this command") -> Iterator[None]:
    """Turn errors that a user can mend into a sentence on stderr and an exit code.

    Use it as a decorator (`@exit_with_sentence()`) or in a `with`. Any other exception is a defect
    of ours and keeps its traceback. A terminal or a reader that has gone changes no exit code.

    Args:
        command: What needs a package that is missing.

    Raises:
        SystemExit: 2 after a `RobotRLError`, 130 after Ctrl-C, 0 where the reader of the command's
            output had enough of it (`... | head`).
    """
    reader_is_gone = False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows ASCII only
    try:
        try:
            yield
        finally:
            reader_is_gone = _flush_or_silence(sys.stdout)
    except RobotRLError as error:
        _say(f"error: {error}")
        raise SystemExit(EXIT_USAGE) from None
    except ModuleNotFoundError as error:
        sentence = missing_package(error, command)
        if sentence is None:
            raise
        _say(f"error: {sentence}")
        raise SystemExit(EXIT_USAGE) from None
    except (MemoryError, RuntimeError, ValueError) as error:  # bad_alloc of MuJoCo is the last
        if not _no_memory(error):
            raise
        _say(
            f"error: this machine has too little memory for what was asked ({error}); ask for less:"
            " fewer envs or episodes, smaller networks, or a smaller training.replay_capacity"
        )
        raise SystemExit(EXIT_USAGE) from None
    except KeyboardInterrupt:
        _say("interrupted")
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        if not (reader_is_gone or _lost_its_reader(sys.stdout)):
            raise  # the pipe of a process of ours
        raise SystemExit(0) from None
    finally:
        with contextlib.suppress(OSError):
            _flush_or_silence(sys.stderr)


def _no_memory(error: Exception) -> bool:
    """True where an allocator of Python, NumPy, PyTorch or CUDA had nothing left."""
    words = ("can't allocate memory", "bad_alloc", "out of memory", "invalid storage size")
    return isinstance(error, MemoryError) or any(one in str(error).lower() for one in words)


def _flush_or_silence(stream: TextIO) -> bool:
    """Flush a stream; returns whether its reader has gone, and lets it write to nowhere then.

    Else the interpreter flushes it again at its end, and exits with a code of its own.
    """
    try:
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # a pipe, a terminal
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return False


def _lost_its_reader(stream: TextIO) -> bool:
    """True if a pipe has lost its reader, although nothing waits to be written to it."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLERR)
    except OSError:  # of a test, which has no file
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to read it; the exit code says it too
        print(text, file=sys.stderr, flush=True)


def missing_package(error: ModuleNotFoundError, purpose: str) -> MissingExtraError | None:
    """The sentence about a package of an extra that is not installed; None for any other module."""
    module = (error.name or "").partition(".")[0]
    return MissingExtraError(*_EXTRAS[module], purpose) if module in _EXTRAS else None


@dataclass(kw_only=True)
class Flags:
    """All that is not `key=value`."""

    multirun: bool = False
    """-m, --multirun"""
    cfg: bool = False
    """--cfg job"""
    info: bool = False
    """--info fields"""


_FLAGS = {"-m": "multirun", "--multirun": "multirun", "--cfg": "cfg", "--info": "info"}
_ARGUMENTS = {"cfg": "job", "info": "fields"}


def read_overrides(
    arguments: Sequence[str] | None, help_text: str | Callable[[], str], *allowed: str
) -> tuple[list[str], Flags]:
    """Read a command line of `key=value` and a few flags; prints the help if asked.

    Args:
        arguments: The command line; None takes the process's.
        help_text: What `--help` prints.
        allowed: Flags that are allowed: `multirun`, `cfg`, `info`.

    Returns:
        All other words, and the flags.

    Raises:
        ConfigError: There is another flag.
        SystemExit: 0 after the help.
    """
    waiting = list(sys.argv[1:] if arguments is None else arguments)
    if "-h" in waiting or "--help" in waiting:
        print(help_text() if callable(help_text) else help_text)
        raise SystemExit(0)
    words, flags = [], Flags()
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("-"):
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        flag = _FLAGS.get(name, "")
        if flag not in allowed:
            raise ConfigError(_not_a_flag(word, waiting))
        argument = _ARGUMENTS.get(flag, "")
        if equals and value != argument:
            raise ConfigError(f"'{word}' is unknown; expected {name} {argument}")
        if not equals and waiting[:1] == [argument]:
            waiting.pop(0)
        setattr(flags, flag, True)
    return words, flags


def _not_a_flag(word: str, following: Sequence[str]) -> str:
    if word == "--ros-args":
        return (
            "--ros-args is not taken: namespace= and domain= say where a deployment speaks, its "
            "topics have fixed names, and use_sim_time cannot be: the loop runs on the computer's "
            "clock"
        )
    name, equals, value = word.lstrip("-").partition("=")
    if not equals:
        value = following[0] if following and not following[0].startswith("-") else "true"
    return f"'{word}' is not a flag; write {name.replace('-', '_')}={value}, as all options"


def read_options(schema: type[Options], words: Sequence[str]) -> Options:
    """Options of a command that configures no run; needs no other package than Python.

    Args:
        schema: Dataclass whose fields are the options: bool, int, float, str, Path, Enum, and
            lists and dictionaries of these, written `[a,b]` and `{a:1,b:2}`, at will without the
            outer brackets.
        words: The `key=value` of the command line.

    Raises:
        ConfigError: An option is unknown or has a wrong value, or one without a default is missing.
    """
    kinds, values = get_type_hints(schema), {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"'{word}' is not an option; expected key=value")
        if name not in kinds:
            raise ConfigError(unknown_name("option", name, kinds))
        try:
            value = _read(text, kinds[name])
            # A shell may have made several words of one: {a:1,b:2}.
            values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
        except ValueError as error:
            raise ConfigError(f"{name} must be {error}, got '{text}'") from None
    for entry in fields(schema):  # pyright: ignore[reportArgumentType]
        required = entry.default is MISSING and entry.default_factory is MISSING
        if required and entry.name not in values:
            raise ConfigError(f"{entry.name} is missing; expected {entry.name}=...")
    return schema(**values)


def _read(text: str, kind: Any) -> Any:
    """A value of this type; raises ValueError that says what was expected."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        kind = next(one for one in inner if one is not NoneType)
        return None if text == "null" else _read(text, kind)
    if origin is list:
        return [_read(part, inner[0]) for part in _parts(text, "[]")]
    if origin is dict:
        pairs = [part.partition(":") for part in _parts(text, "{}")]
        if not all(name and colon for name, colon, _ in pairs):
            raise ValueError("a dictionary such as {a:1,b:2}")
        return {name.strip(): _read(value.strip(), inner[1]) for name, _, value in pairs}
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError("true or false")
        return text == "true"
    if issubclass(kind, Enum):
        if text not in kind.__members__:
            raise ValueError(f"one of {', '.join(kind.__members__)}")
        return kind[text]
    try:
        return kind(text)
    except ValueError:
        raise ValueError({int: "a whole number", float: "a number"}.get(kind, str(kind))) from None


def _parts(text: str, brackets: str) -> list[str]:
    """Parts between commas that are in no brackets; the outer brackets may be left out."""
    if text[:1] == brackets[0] and text[-1:] == brackets[1]:
        text = text[1:-1]
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
