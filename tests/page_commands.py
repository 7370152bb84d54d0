"""Commands on the pages: how they are found, and which of them run in the tests."""

import re
import shlex
from collections.abc import Iterator

from tests.test_docs import READ_THROUGH, ROOT

RUN = ("train", "evaluate", "export", "collect", "data", "reward", "runs", "view", "zoo",
       "critics", "urdf", "robot", "new")  # fmt: skip
"""Commands that need nothing but files: tests/robot_rl/cli/test_pages.py runs them."""
NOT_RUN = {
    "task=calm_hover": "tests/robot_rl/cli/test_broken_plugins.py, with the file of the page",
    "view .*reward.model": "a page in a browser: tests/robot_rl/cli/test_view.py",
    "--help|--info": "tests/robot_rl/cli/test_main.py",
    "env=(mjlab|isaaclab)|shimmy:|metaworld:": "environments of others, in a Python of their own",
    r"env\.pixels": "tests/sim/adapters/test_gymnasium_images.py, with MUJOCO_GL=egl",
    r"robot\.model=menagerie": "published models, which are not installed here",
    "device=cuda|engine=warp": "a GPU",
    r"cluster\.|hydra[/.]launcher": "tests/robot_rl/cli/test_train_cluster.py and test_sweep.py",
    "only_led": "a run on a robot: tests/robot_rl/cli/learning/test_episodes.py",
    r"\.hdf5|dance\.csv": "a file of the reader's",
    "runs compare metric=eval/success out=compared": "beside tests/scripts/test_baselines.py",
    r"^robot-rl \w+( (merge|info|convert|clean|compare|project))?$": "a name alone",
    r"^robot-rl collect noise=|\.\.\.": "a part of a command",
}
"""Commands among these that do not run, by a part of theirs, and why."""


def blocks(text: str) -> Iterator[str]:
    """Code of a page: between fences of a shell or of no language, and indented."""
    language: str | None = None
    found: list[str] = []
    for line in [*text.splitlines(), "end"]:
        fence = re.match(r" *```(\w*)", line)
        inside = language in ("", "sh", "bash", "console") if fence is None else False
        if inside or (language is None and fence is None and re.match(r" {4,}\S", line)):
            found.append(line)
            continue
        if found:
            yield "\n".join(found)
            found = []
        if fence is not None:
            language = fence[1] if language is None else None


def spans(text: str) -> Iterator[str]:
    """Commands of ours within sentences, of more words than their name, that leave nothing out."""
    fenced = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    for span in re.findall(r"`(robot-rl [^`]+)`", fenced):
        if "..." not in span and not re.search(r"(task|robot|learner)=<|-rl <|\bmy_|<[^>]* ", span):
            yield " ".join(span.split())


def commands(text: str) -> Iterator[str]:
    """Commands of ours in the code of a page, with what its variables stand for."""
    known: dict[str, str] = {}
    for block in blocks(text):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            line = line.strip().partition(" | ")[0].removeprefix("$ ")
            if found := re.match(r"([A-Z]+)=(['\"]?)(.*?)\2(?:\s+#.*)?$", line):
                known["$" + found[1]] = found[3]
            line = re.sub(r"^(?:[A-Z_]+=\S+ )*(?:[\w./-]*/)?robot-rl ", "robot-rl ", line)
            if line.startswith("robot-rl "):
                for name, value in known.items():
                    line = line.replace(name, value)
                yield line


def words_of(line: str) -> list[str]:
    """Words behind `robot-rl`; what a reader fills in is a name."""
    line = re.sub(r"<[^>]*>", "mine", line.replace("task=<name>", "task=hover"))
    return shlex.split(line, comments=True)[1:]


def runs_in_tests(line: str) -> bool:
    """True for a command that tests/robot_rl/cli/test_pages.py runs."""
    plain = line.partition("  #")[0].strip()
    return words_of(line)[0] in RUN and not any(re.search(part, plain) for part in NOT_RUN)


def lines_that_run(page: str) -> list[str]:
    """Commands of a page that run in the tests, in its order."""
    return [
        line for line in dict.fromkeys(commands((ROOT / page).read_text())) if runs_in_tests(line)
    ]


PAGES_THAT_RUN = [
    page for page in READ_THROUGH
    if not page.startswith("docs/proofs/")  # of runs as they were
    and lines_that_run(page)
]  # fmt: skip
