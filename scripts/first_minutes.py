"""Stopwatch from `git clone` to the first film. Needs git, make and Python alone.

    python3 scripts/first_minutes.py [repository]

Clones into a temporary folder, runs `make train` there as the README says, prints when each part
was over, and deletes the folder. Caches of pip, of the compiler and of this computer's files stay
as they are: a second time is faster than a first one.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 180.0
"""Time that is asked for on an idle machine with a warm network [s]."""
_TRAINS = "-> runs/"
"""Part of the line that `make train` prints when the set-up is over."""


def main(arguments: list[str]) -> int:
    """Measure; exit code 1 where no film came out."""
    source = arguments[0] if arguments else str(Path(__file__).resolve().parents[1])
    own = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    begin = last = time.monotonic()

    def tell(part: str) -> None:
        nonlocal last
        now = time.monotonic()
        print(f"{now - begin:6.1f} s   {part}: {now - last:.1f} s", flush=True)
        last = now

    with tempfile.TemporaryDirectory(prefix="robot_rl_first_") as name:
        project = Path(name) / "robot_rl"
        subprocess.run(["git", "clone", "-q", source, str(project)], check=True)
        tell("clone")
        waiting = True
        with subprocess.Popen(
            ["make", "train"], cwd=project, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as train:  # fmt: skip
            assert train.stdout is not None
            lines = []
            for line in train.stdout:
                lines.append(line)
                if waiting and _TRAINS in line:
                    tell("set-up")
                    waiting = False
        films = list(project.glob("runs/*/videos/*.mp4"))
        if train.returncode or not films:
            print("".join(lines[-20:]), file=sys.stderr)
            print(f"no film: make train ended with {train.returncode}", file=sys.stderr)
            return 1
        tell(f"training, plots, bundle and {films[0].name}")
    total = last - begin
    told = "reached" if total <= BAR else "missed"
    print(f"{total:6.1f} s   from git clone to a film; {BAR:g} s are asked for: {told}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
