"""Commands of the pages, run one after the other as a reader would, in small numbers.

What a page takes for granted (a run, a bundle, a data set) is made before the line that needs it.
tests/page_commands.py says which commands do not run, and why.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrices import split
from tests.page_commands import PAGES_THAT_RUN, lines_that_run, words_of
from tests.urdf_arm import six_joint_urdf
from tests.urdf_dog import LEGS, four_legged_urdf
from tests.vision_models import save_model

pytestmark = pytest.mark.slow

ALWAYS = {
    "README.md", "docs/first_policy.md", "docs/commands.md", "docs/training.md", "docs/viewing.md",
    "docs/rewards.md", "docs/own_robot.md", "docs/own_task.md", "docs/robustness.md",
    "docs/worlds.md", "docs/zoo.md", "docs/prior_data/collecting.md",
    "docs/learners/with_people.md", "docs/learners/distributional.md",
}  # fmt: skip
"""Pages whose commands run by default, one at least of each kind. Those of the others run under
`--full`; tests/test_docs_commands.py has all of them composed and checked each time."""

FILMED = "docs/commands.md"
"""The page whose evaluations are filmed."""

FEW = {
    "num_envs": "4", "threads": "1", "training.total_steps": "200", "training.random_steps": "40",
    "training.evaluation_interval": "100", "training.evaluation_episodes": "2",
    "training.replay_capacity": "400", "training.updates_per_step": "1", "learner.batch_size": "16",
    "logging.tensorboard": "false", "logging.interval_seconds": "1000", "video": "false",
}  # fmt: skip
"""Fields of a training, and values that let it end at once."""
FEWER = {
    "learner.lr_schedule.decay", "training.offline.updates", "learner.mixture_updates",
    "learner.noise.updates",
}  # fmt: skip
"""Fields that are small too where a page names them."""


def small(words: list[str]) -> Iterator[str]:
    """Words of a training with small numbers, whatever numbers the page has."""
    found = dict(word.split("=", 1) for word in words if "=" in word)
    for word in words:
        name = word.partition("=")[0]
        if name in FEWER:
            yield f"{name}=20"
        elif name not in FEW or found.get(name) == "0":
            yield word
    if "resume" not in found:
        yield from (f"{name}={few}" for name, few in FEW.items() if found.get(name) != "0")


def shortened(words: list[str], *, filmed: bool = False) -> list[str]:
    """Words of a command of a page, with as little to do as it can have.

    Evaluations are filmed only where that is said: a film takes longer than its episodes do.
    """
    name, *rest = words
    if name == "train":
        rest = list(small(rest))
    elif name == "evaluate":
        short = ["task.episode_length=2.5"] if "robustness=true" in rest else []
        if not filmed and not any(word.startswith("video=") for word in rest):
            short.append("video=false")
        rest = [word for word in rest if not word.startswith("episodes=")] + ["episodes=2", *short]
    elif name == "collect":
        few = "episodes=8" if "append=true" in rest else "episodes=4"  # those of before included
        rest = [word for word in rest if not word.startswith("episodes=")] + [few]
    elif name == "view":
        film = [] if any(word.startswith("video=") for word in rest) else ["video=film.mp4"]
        rest = [*rest, *film, "seconds=0.2"]
    elif words[:2] == ["reward", "train"]:
        rest = [word for word in rest if not word.startswith("updates=")] + ["updates=5"]
    return [name, *rest]


def renamed(text: str) -> str:
    """The robot on four legs with the names that a page gives it."""
    for name, short in zip(LEGS, ("FL", "FR", "RL", "RR"), strict=True):
        text = text.replace(name, short)
    return text.replace("Small Dog", "my_dog")


def newest_run() -> Path:
    return max(Path("runs").glob("*/config.yaml"), key=lambda path: path.stat().st_mtime).parent


def prepared(words: list[str], command) -> list[str]:
    """Words of a command with names of what is there, which is made where no line made it yet."""
    line = " ".join(words)
    if words[:2] == ["robot", "import"] or "robot=my_" in line:
        Path("my_arm.urdf").write_text(six_joint_urdf(name="my_arm"))
        Path("my_dog.urdf").write_text(renamed(four_legged_urdf()))
        if words[0] != "robot" and not Path("my_configs").exists():
            command("robot", "import", "my_arm.urdf")
    if re.search(r"runs/mine|=latest|bundle=mine|runs compare|runs list", line) and not any(
        Path("runs").glob("*/config.yaml")
    ):
        base = "learner=residual" in words
        task = "peg" if base else "reach" if "learner=wsrl" in words else "hover"
        learner = ["learner=bc", "training.demonstrations.data=datasets/peg"] if base else []
        command(*shortened(prepared(["train", f"task={task}", *learner], command)))
    for folder in re.findall(r"learner.images.weights=(\S+)", line):
        save_model(folder, "vit")
    if "mine" in line and words[0] != "zoo":
        words = [re.sub(r"runs/mine", str(newest_run()), word) for word in words]
        words = [re.sub(r"=mine$", f"={newest_run()}/bundle", word) for word in words]
    for run in re.findall(r"=(\S+)/bundle\b", " ".join(words)) if words[0] != "export" else ():
        if Path(run, "config.yaml").exists() and not Path(run, "bundle").exists():
            command("export", f"run={run}")
    for found in re.findall(r"datasets/\w+", line) if words[0] in ("train", "reward") else ():
        if not Path(found).exists():
            if words[0] == "reward":  # of the same task as the page's other data
                shutil.copytree(min(Path("datasets").iterdir()), found)
            else:
                task = [word for word in words if re.match("task=|task.kind|env.cameras", word)]
                command("collect", *(task or ["task=reach"]), f"out={found}", "episodes=4")
    return words


@pytest.mark.parametrize("page", split(PAGES_THAT_RUN, ALWAYS))
def test_commands_of_a_page_run(page, here, command, monkeypatch):
    # Curves, films and bundles of every training take longer than the trainings do; test_train.py
    # looks at them.
    monkeypatch.setattr("robot_rl.cli.session.report_outcome", lambda *_: {})
    for line in lines_that_run(page):
        name, *words = shortened(prepared(words_of(line), command), filmed=page == FILMED)
        try:
            command(name, *words)
        except AssertionError as error:
            pytest.fail(f"{page} says: {line}\nwhich ran as: {' '.join([name, *words])}\n{error}")
