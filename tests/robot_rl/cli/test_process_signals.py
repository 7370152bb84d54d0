"""Requests from the terminal: signals, and a terminal that is gone."""

import os
import signal
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)


@pytest.fixture
def processes(monkeypatch) -> Iterator[ModuleType]:
    """The module; handlers are put back."""
    import importlib

    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield importlib.import_module("robot_rl.cli.deployment.signals")
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS[:3])
def test_signal_interrupts_and_is_remembered(processes, number):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what it runs with `&`
    terminal = processes.TerminalSignals()
    terminal.interrupt_if_asked()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert terminal.left
    with pytest.raises(KeyboardInterrupt):
        terminal.interrupt_if_asked()


def test_signals_that_come_together_are_one_and_a_second_ctrl_c_hurries(processes, monkeypatch):
    moment = 0.0
    monkeypatch.setattr(processes.time, "monotonic", lambda: moment)
    terminal = processes.TerminalSignals()
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


def test_first_ctrl_c_does_not_harden_a_stop_that_is_under_way(processes, monkeypatch):
    moment = 0.0
    monkeypatch.setattr(processes.time, "monotonic", lambda: moment)
    terminal = processes.TerminalSignals()
    terminal.stopping()
    signal.raise_signal(signal.SIGINT)
    moment = 1.0
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_line_that_nobody_can_read_ends_the_watching(processes, monkeypatch, tmp_path):
    terminal = processes.TerminalSignals()
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
