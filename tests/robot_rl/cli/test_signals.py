"""What reaches a session from around it: messages before it has a folder, torchrun's signals."""

import importlib
import logging
import signal
import subprocess
import sys

import pytest

from robot_rl.core.process import clean_environ
from tests.robot_rl.cli.tiny_run import ROOT


def test_a_logger_is_heard_meanwhile_and_as_before_after_it(monkeypatch, capsys):
    log_to_stdout = importlib.import_module("robot_rl.cli.session").log_to_stdout
    logger = logging.getLogger("worlds.that.take.memory")
    with log_to_stdout(logger.name):
        logger.info("4096 worlds: 428 MB")
    logger.info("nobody asked")
    assert capsys.readouterr().out == "4096 worlds: 428 MB\n"
    assert not logger.handlers
    assert logger.level == logging.NOTSET


_ENDS = """
import signal, sys
from robot_rl.core.errors import RankError
from robot_rl.training.ranks import Ranks
from robot_rl.cli.session import stop_on_signals

class Trainer:
    def stop(self):
        print("asked to stop")

ranks = Ranks()
ranks.count = int(sys.argv[1])
try:
    with stop_on_signals(Trainer(), ranks):
        signal.raise_signal(signal.SIGTERM)
        raise RankError("rank 1 of 2 died")
except RankError as error:
    signal.raise_signal(signal.SIGTERM)
    print(error)
"""


@pytest.mark.parametrize(
    ("ranks", "code", "last"), [(1, -signal.SIGTERM, "asked to stop"), (2, 0, "rank 1 of 2 died")]
)
def test_a_rank_says_who_died_although_torchrun_ends_it_meanwhile(ranks, code, last):
    ended = subprocess.run(
        [sys.executable, "-u", "-c", _ENDS, str(ranks)], capture_output=True, text=True,
        env=clean_environ({"PYTHONPATH": str(ROOT)}), timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout.split("\n")[-2]) == (code, last), ended.stderr
