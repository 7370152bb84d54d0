"""Single figures beside what they are asked to stay below."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number; the smaller, the better."""

    what: str
    """Name of the measurement."""
    value: float
    unit: str = ""
    most: float | None = None
    """Bar; None where it is only reported."""
    note: str = ""
    """Method, or a remark."""

    @property
    def reached(self) -> bool | None:
        """True if it meets its bar; None where there is none."""
        return None if self.most is None else self.value <= self.most

    @property
    def line(self) -> str:
        """For a terminal."""
        told = f"  {self.what:<52}{self.value:>10.3g} {self.unit:<6}"
        if self.most is not None:
            told += f"  bar {self.most:g}: {'reached' if self.reached else 'missed'}"
        return f"{told}  {self.note}".rstrip()

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "reached": self.reached}


def p99(samples: Sequence[float] | np.ndarray) -> float:
    """99th percentile."""
    return float(np.percentile(samples, 99))


def counted(samples: Sequence[float] | np.ndarray) -> str:
    """Number of samples that a percentile was taken of, and their extent."""
    return f"of {len(samples)}; p50 {np.median(samples):.3g}, longest {np.max(samples):.3g}"
