"""Keeps MuJoCo's warnings, which it prints and writes into a file, from being said."""

# MuJoCo's compiled modules come without type information: their names are unknown to pyright.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco


@contextmanager
def warnings_unsaid() -> Iterator[None]:
    """Meanwhile MuJoCo's library, of the whole process, warns nobody."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
