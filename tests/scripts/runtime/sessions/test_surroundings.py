"""What is told on the terminal before a run has a folder for it."""

import importlib
import logging
from pathlib import Path

import pytest


def test_a_logger_is_heard_meanwhile_and_as_before_after_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[4] / "scripts"))
    told_aloud = importlib.import_module("runtime.sessions.surroundings").told_aloud
    logger = logging.getLogger("worlds.that.take.memory")
    with told_aloud(logger.name):
        logger.info("4096 worlds: 428 MB")
    logger.info("nobody asked")
    assert capsys.readouterr().out == "4096 worlds: 428 MB\n"
    assert not logger.handlers
    assert logger.level == logging.NOTSET
