"""Requests from the terminal: signals, and a terminal that is gone."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from robot_rl.cli.deployment import signals

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)


@pytest.fixture
def terminal() -> Iterator[signals.TerminalSignals]:
    """Hears signals; handlers are put back."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what it runs with `&`
    yield signals.TerminalSignals()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS[:3])
def test_signal_interrupts_and_is_remembered(terminal, number):
    terminal.interrupt_if_asked()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert terminal.left
    with pytest.raises(KeyboardInterrupt):
        terminal.interrupt_if_asked()


def test_signals_that_come_together_are_one_and_a_second_ctrl_c_hurries(terminal, monkeypatch):
    moment = 0.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: moment)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    for number in NUMBERS[:3]:
        signal.raise_signal(number)
    moment = 1.0
    signal.raise_signal(signal.SIGTERM)
    moment = 2.0
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert terminal.left


def test_first_ctrl_c_does_not_harden_a_stop_that_is_under_way(terminal, monkeypatch):
    moment = 0.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: moment)
    terminal.stopping()
    signal.raise_signal(signal.SIGINT)
    moment = 1.0
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_line_that_nobody_can_read_ends_the_watching(terminal, monkeypatch):
    read, write = os.pipe()
    kept = os.dup(write)
    with os.fdopen(write, "w") as gone:
        os.close(read)
        monkeypatch.setattr(sys, "stdout", gone)
        terminal.tell("policy")
        with pytest.raises(KeyboardInterrupt):
            terminal.interrupt_if_asked()
        terminal.tell("stopping softly")  # goes nowhere, and harms nothing
    os.close(kept)
