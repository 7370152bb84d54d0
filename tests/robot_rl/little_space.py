"""Work in a child whose files may not grow, as limits and rights cannot be taken back."""

import multiprocessing
import resource
from collections.abc import Callable

import pytest

from robot_rl.core.errors import StorageError


def limit_files(size: int) -> None:
    """No file of this process may be larger [bytes]."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def told_by_child(work: Callable[[], object]) -> str:
    """Sentence of the `StorageError` that work ends with in a child."""
    fork = multiprocessing.get_context("fork")
    answers, child_end = fork.Pipe(duplex=False)

    def work_and_tell() -> None:
        with pytest.raises(StorageError) as caught:
            work()
        child_end.send(str(caught.value))

    child = fork.Process(target=work_and_tell)
    child.start()
    assert answers.poll(20)
    child.join()
    assert child.exitcode == 0
    return answers.recv()
