"""Runs Python with the instruction set of torch, MKL and oneDNN held down: `... avx2 -m pytest`.

A product of matrices rounds otherwise under each set, which over thousands of updates is another
seed. What the processor lacks is passed over, and said.
"""

import os
import subprocess
import sys
from pathlib import Path

SETS = {
    # name: the processor's flag that it needs, and what holds the libraries down to it
    "avx2": ("avx2", {
        "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }),
    "avx512": ("avx512f", {
        "ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    }),
    "native": ("", {}),
}  # fmt: skip


def main() -> int:
    """Run Python; returns its exit code, 0 where the processor lacks the set."""
    name, *arguments = sys.argv[1:]
    flag, settings = SETS[name]
    cpu = Path("/proc/cpuinfo")
    if flag and cpu.exists() and flag not in cpu.read_text().split():
        sys.stdout.write(f"{name}: this processor has none, passed over\n")
        return 0
    sys.stdout.write(f"{name}: {settings or 'all that the processor has'}\n")
    return subprocess.call([sys.executable, *arguments], env={**os.environ, **settings})


if __name__ == "__main__":
    raise SystemExit(main())
