"""Make or mend an environment and install this project into it; called by the Makefile.

Usage: python .ci/setup.py STAMP EXTRA [EXTRA ...]

Runs before anything is installed, so it uses the standard library only. STAMP lies in the
environment's folder, such as `.venv`, and is written last: an interrupted or failed set-up leaves
none, and the next call finishes the work.
"""

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / (Path(sys.argv[1]).parent if len(sys.argv) > 1 else ".venv")
VENV_PYTHON = VENV / "bin" / "python"
LOG = VENV / "setup.log"
PINNED_BY = {"mjlab": ("mujoco", "mujoco-warp", "rsl-rl-lib")}
"""Extras that bring versions of their own, whatever constraints.txt says of these packages."""
QUIET_S = 5.0  # at least this long between two progress lines of the same stage


def main(stamp: Path, extras: list[str]) -> int:
    """Return the exit status: 0 when `stamp` was written."""
    start = time.monotonic()
    if VENV.is_symlink():  # it would be emptied, as it was made elsewhere
        _say(
            f"{VENV} is a link to {VENV.resolve()}, which other checkouts may use; remove the link"
        )
        return 1
    VENV.mkdir(exist_ok=True)
    with _only_one() as lock:
        if stamp.exists() and _is_whole():  # another make finished it while this one waited
            return 0
        others = [path for path in VENV.glob(".ready-*") if _key(path) == _key(stamp)]
        for old in VENV.glob(".ready-*"):
            old.unlink()
        if not _is_whole():
            others = []
            if not _create():
                return 1
        log = LOG.relative_to(ROOT)
        _say(
            f"installing robot_rl[{','.join(extras)}]: 2 to 4 GB on the disk, with CUDA 6 and more "
            f"(a minute or two; log: {log})"
        )
        if not _install(extras, lock):
            return 1
        for path in _contained(stamp) + others:
            path.touch()
    _say(f"set-up ready after {time.monotonic() - start:.0f} s")
    return 0


@contextmanager
def _only_one() -> Iterator[int]:
    """Wait for any other set-up of this folder; a pip that outlives us keeps the lock."""
    lock = os.open(VENV / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another set-up of this folder to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def _is_whole() -> bool:
    """True if the environment's pip runs and lives here (false: half made, moved or copied)."""
    try:
        reply = subprocess.run([VENV / "bin" / "pip", "--version"], capture_output=True, text=True)
    except OSError:
        return False
    lives_here = reply.returncode == 0 and f" from {VENV}{os.sep}" in reply.stdout
    return lives_here and os.access(VENV_PYTHON, os.X_OK)


def _create() -> bool:
    version = ".".join(map(str, sys.version_info[:3]))
    # Not the Python of an activated .venv, which is about to be removed.
    python = getattr(sys, "_base_executable", None) or sys.executable
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        _say(
            f"{python} ({version}) cannot make environments: module {missing[0]} is missing.\n"
            f"  On Debian and Ubuntu: apt install {package}\n"
            "  Or name another Python >= 3.11: make PYTHON=/path/to/python ..."
        )
        return False
    _say(f"making {VENV.name} with Python {version} ({python})")
    # --clear would remove the lock file too, so the contents go one by one.
    for entry in VENV.iterdir():
        if entry.name != ".lock":
            _remove(entry)
    reply = subprocess.run(
        [python, "-m", "venv", VENV], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if reply.returncode != 0:
        _say(f"making {VENV.name} failed:\n{_indent(reply.stdout.splitlines()[-15:])}")
    return reply.returncode == 0


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def _install(extras: list[str], lock: int) -> bool:
    """Run pip, show where it is in short lines, and its error if it fails."""
    command = [VENV_PYTHON, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "-c", _constraints(extras), "-e", f".[{','.join(extras)}]"]
    start = spoken = time.monotonic()
    lines: list[str] = []
    with LOG.open("w") as log:
        pip = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[lock],
        )
        assert pip.stdout is not None
        try:
            for line in pip.stdout:
                log.write(line)
                lines.append(line.rstrip())
                stage, urgent = _stage(line)
                now = time.monotonic()
                if stage and (urgent or now - spoken > QUIET_S):
                    _say(f"  {now - start:3.0f} s  {stage}")
                    spoken = now
            status = pip.wait()
        except BaseException:
            pip.terminate()
            pip.wait()
            raise
    if status != 0:
        errors = [line for line in lines if line.startswith(("ERROR", "error:"))]
        shown = lines[-25:] if len(errors) < 2 else lines[lines.index(errors[0]) :][:25]
        _say(f"pip failed (status {status}):\n{_indent(shown)}\n  All of it: {LOG}")
    return status == 0


def _constraints(extras: list[str]) -> str:
    """Path of the versions to install: constraints.txt, but for what an extra pins by itself."""
    own = {name for extra in extras for name in PINNED_BY.get(extra, ())}
    kept = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.partition("==")[0] not in own
    ]
    path = VENV / "constraints.txt"
    path.write_text("\n".join(kept) + "\n")
    return str(path)


def _stage(line: str) -> tuple[str, bool]:
    """Progress that a line of pip's output tells, and whether it must be shown."""
    words = line.split()
    if line.startswith("Installing collected packages:"):
        return f"unpacking {line.count(',') + 1} packages", True
    if re.match(r"\s*(Downloading|Using cached|Processing) \S", line):
        size = re.search(r"\(([\d.]+) [kMG]B\)", line)
        name = Path(words[2 if words[0] == "Using" else 1]).name
        verb = "downloading" if words[0] == "Downloading" else "reading"
        # Nothing more is heard until a file is complete, so a long wait is announced.
        long = size is not None and ("GB" in size[0] or ("MB" in size[0] and float(size[1]) >= 100))
        return f"{verb} {name} {size[0] if size else ''}".rstrip(), long
    if line.startswith("Collecting "):
        return f"resolving {words[1]}", False
    return "", False


def _key(stamp: Path) -> str:
    """The checksum of dependencies and folder in `.ready-<kind>-<checksum>`."""
    return stamp.name.split("-", 2)[2]


def _contained(stamp: Path) -> list[Path]:
    """Stamps that this set-up earns: each contains training, and make test's has the demo too."""
    names = ["train", "demo"] if stamp.name.startswith(".ready-dev-") else ["train"]
    return [stamp, *(stamp.with_name(f".ready-{name}-{_key(stamp)}") for name in names)]


def _say(text: str) -> None:
    print(f"[setup] {text}", flush=True)


def _indent(lines: list[str]) -> str:
    return "\n".join(f"  | {line}" for line in lines)


if __name__ == "__main__":
    try:
        sys.exit(main(ROOT / sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        _say("interrupted; the next make goes on")
        sys.exit(130)
