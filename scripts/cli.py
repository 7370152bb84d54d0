"""How every script ends: a person's mistake is one sentence and exit code 2, never a traceback."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from robot_rl.core.errors import RobotRLError

EXIT_USAGE = 2
"""What was asked for cannot be done."""
EXIT_INTERRUPTED = 130
"""Ctrl-C, as shells count it (128 + SIGINT)."""


@contextmanager
def exit_with_sentence() -> Iterator[None]:
    """Turn errors that a user can mend into a sentence on stderr and an exit code.

    Use it as a decorator (`@exit_with_sentence()`) or in a `with`. Any other exception is a defect
    of ours and keeps its traceback.

    Raises:
        SystemExit: 2 after a `RobotRLError`, 130 after Ctrl-C.
    """
    try:
        yield
    except RobotRLError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has gone (`... | head`): nothing to say, and nothing left to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
