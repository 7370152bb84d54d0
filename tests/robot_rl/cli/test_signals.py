"""What reaches a session from around it: messages before it has a folder, torchrun's signals."""

import logging
import signal
from types import SimpleNamespace

import pytest

from robot_rl.cli.run_logging import log_to_stdout
from robot_rl.cli.signals import stop_on_signals
from robot_rl.training.ranks import Ranks


def test_a_logger_is_heard_meanwhile_and_as_before_after_it(capsys):
    logger = logging.getLogger("worlds.that.take.memory")
    with log_to_stdout(logger.name):
        logger.info("4096 worlds: 428 MB")
    logger.info("nobody asked")
    assert capsys.readouterr().out == "4096 worlds: 428 MB\n"
    assert not logger.handlers
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize("count", [1, 2])
def test_a_rank_says_who_died_although_torchrun_ends_it_meanwhile(count):
    asked: list[str] = []
    ranks = Ranks()
    ranks.count = count
    trainer = SimpleNamespace(stop=lambda: asked.append("asked to stop"))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with stop_on_signals(trainer, ranks) as caught:
            signal.raise_signal(signal.SIGTERM)
        after = signal.getsignal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (asked, caught) == (["asked to stop"], [signal.SIGTERM])
    assert after == (before[signal.SIGTERM] if count == 1 else signal.SIG_IGN)
