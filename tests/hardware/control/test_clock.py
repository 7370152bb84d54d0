"""Clocks, latencies, and what a process asks the system for."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from hardware.control.clock import Latencies, LogicalClock, MonotonicClock
from hardware.control.realtime import real_time_kernel
from robot_rl.core.process import clean_environ
from scripts.bench.deployment.lateness import bare_lateness


def test_the_real_clock_wakes_at_or_after_the_deadline_and_a_perfect_one_is_never_late():
    clock = MonotonicClock()
    for _ in range(20):
        deadline = clock.now() + 1e-3
        clock.sleep_until(deadline)
        assert clock.now() >= deadline
    clock.sleep_until(clock.now() - 1.0)  # has passed: at once
    assert bare_lateness(LogicalClock(), 0.002, 50).summary()["lateness"].longest < 1e-12


def test_a_signal_does_not_end_the_sleep_early():
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(True))
    try:
        clock = MonotonicClock()
        deadline = clock.now() + 0.03
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        clock.sleep_until(deadline)
        assert clock.now() >= deadline
        assert heard == [True]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_percentiles_are_of_the_last_samples_and_the_longest_of_all():
    latencies = Latencies(["read", "write"], remembered=100)
    for value in [9.0, *np.arange(1, 101)]:  # the 9 is forgotten, but for the count
        latencies.add("read", value)
    latencies.add("read", 50.5)  # in the place of 1
    found = latencies.summary()
    assert list(found) == ["read"]
    assert found["read"].count == 102
    assert found["read"].p50 == np.percentile([*range(2, 101), 50.5], 50)
    assert found["read"].longest == 100
    assert sorted(latencies.samples("read")) == sorted([*range(2, 101), 50.5])
    assert latencies.samples("write").size == 0


def test_rights_are_asked_for_reported_and_given_back_and_a_refusal_names_its_remedy():
    """In a process of its own: the garbage collector and the scheduler belong to all tests."""
    code = """
import gc, os, resource, sys
from hardware.control.realtime import release_realtime, request_realtime
rights = request_realtime(priority=1)
assert [right.name for right in rights] == ["SCHED_FIFO", "mlockall", "gc", "switch interval"]
assert all(right.detail for right in rights), rights
assert rights[2].granted and not gc.isenabled() and gc.get_freeze_count() > 0
assert rights[3].granted and sys.getswitchinterval() < 1e-3
assert rights[0].granted == (os.sched_getscheduler(0) == os.SCHED_FIFO)
release_realtime()
assert gc.isenabled() and gc.get_freeze_count() == 0
assert os.sched_getscheduler(0) == os.SCHED_OTHER

# Zero locked bytes and a user without rights: both are refused, nothing fails.
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
if os.getuid() == 0:
    os.setuid(65534)
rights = {right.name: right for right in request_realtime()}
for name, key in (("SCHED_FIFO", "rtprio"), ("mlockall", "memlock")):
    assert not rights[name].granted and key in rights[name].detail, rights
"""
    environ = clean_environ({"PYTHONPATH": os.pathsep.join(sys.path)})
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)


@pytest.mark.parametrize(("said", "granted"), [("1\n", True), ("0\n", False), (None, False)])
def test_a_kernel_says_whether_it_is_a_real_time_one(tmp_path, said, granted):
    if said is not None:
        (tmp_path / "sys/kernel").mkdir(parents=True)
        (tmp_path / "sys/kernel/realtime").write_text(said)
    kernel = real_time_kernel(tmp_path)
    assert kernel.granted is granted
    assert "PREEMPT_RT" in kernel.detail
