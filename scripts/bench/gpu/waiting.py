"""Speeds of what is told to a device."""

import time
from collections.abc import Callable

import torch


def until_done(speed: Callable[[], float], device: torch.device) -> Callable[[], float]:
    """With the time that an accelerator needs to finish what it was told."""
    if device.type != "cuda":
        return speed

    def measure() -> float:
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        told = speed()
        took = time.perf_counter() - start
        torch.cuda.synchronize(device)
        return told * took / (time.perf_counter() - start)

    return measure
