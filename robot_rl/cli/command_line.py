"""How every script reads its command line, and how it ends.

A person's mistake is one sentence and exit code 2, never a traceback. Scripts import their parts
inside this guard: help is there at once, and a package that is not installed is a sentence too.
"""

import argparse
import contextlib
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from robot_rl.core.errors import MissingExtraError, RobotRLError

EXIT_USAGE = 2
"""What was asked for cannot be done."""
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
    "pyarrow": ("pyarrow", "data"),
    "h5py": ("h5py", "data"),
    "rosbags": ("rosbags", "record"),
    "ray": ("ray", "cluster"),
}


@contextmanager
def exit_with_sentence() -> Iterator[None]:
    """Turn errors that a user can mend into a sentence on stderr and an exit code.

    Use it as a decorator (`@exit_with_sentence()`) or in a `with`. Any other exception is a defect
    of ours and keeps its traceback. A terminal or a reader that has gone changes no exit code.

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
        sentence = missing_package(error, "this command")
        if sentence is None:
            raise
        _say(f"error: {sentence}")
        raise SystemExit(EXIT_USAGE) from None
    except KeyboardInterrupt:
        _say("interrupted")
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        if not reader_is_gone:
            raise  # the pipe of a process of ours
        raise SystemExit(0) from None
    finally:
        with contextlib.suppress(OSError):
            _flush_or_silence(sys.stderr)


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


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to read it; the exit code says it too
        print(text, file=sys.stderr, flush=True)


def missing_package(error: ModuleNotFoundError, purpose: str) -> MissingExtraError | None:
    """The sentence about a package of an extra that is not installed; None for any other module.

    Args:
        error: What the import raised.
        purpose: What needs the package.
    """
    module = (error.name or "").partition(".")[0]
    return MissingExtraError(*_EXTRAS[module], purpose) if module in _EXTRAS else None


def read_overrides(
    arguments: Sequence[str] | None, help_text: Callable[[], str], *flags: str
) -> tuple[list[str], argparse.Namespace]:
    """Read a command line of `key=value` overrides and a few flags; prints the help if asked.

    Args:
        arguments: The command line; None takes the process's.
        help_text: Gives what `--help` prints.
        flags: Flags that are allowed: `multirun`, `cfg`, `info`.

    Returns:
        The overrides, and the flags as attributes.

    Raises:
        SystemExit: 0 after the help, 2 after an unknown flag.
    """
    parser = argparse.ArgumentParser(
        add_help=False, usage="%(prog)s [key=value ...]; --help says what can be chosen"
    )
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-h", "--help", action="store_true")
    if "multirun" in flags:
        parser.add_argument("-m", "--multirun", action="store_true")
    for name, choice in (("cfg", "job"), ("info", "fields")):
        if name in flags:
            parser.add_argument(f"--{name}", choices=[choice], nargs="?", const=choice)
    options = parser.parse_intermixed_args(arguments)
    if options.help:
        print(help_text())
        raise SystemExit(0)
    return options.overrides, options
