"""Teachers: the policy of a run that teaches in another run; what does not fit is refused."""

import math
from pathlib import Path
from typing import Any

from configs.schema import RunConfig, component_of
from robot_rl.core.errors import ConfigError, SpecMismatchError
from robot_rl.core.robot import RobotSpec
from robot_rl.training.runs.run_folder import RunFolder, find_runs

_PLANT = "sensed/plant"
"""Term that shows the drawn parameters as parts of their ranges: it means what the ranges say."""


def open_teacher(name: str) -> RunFolder:
    """The run that `learner.teacher` names: its folder, or a folder of runs, whose newest it is.

    Runs that are taught themselves do not count: the student's own may lie there.

    Raises:
        ConfigError: Nothing is named, or there is no run.
    """
    if not name:
        raise ConfigError(
            "learner=distill needs a teacher: give learner.teacher=runs/<run>, a run whose policy "
            "may see more than the student, such as one of learner.actor.groups=[critic]"
        )
    path = Path(name)
    found = [] if (path / "config.yaml").is_file() else _possible(path)
    if not found and not (path / "config.yaml").is_file():
        raise ConfigError(
            f"learner.teacher={name} is neither a run nor a folder of runs; train one with: "
            "robot-rl train ... learner.actor.groups=[critic]"
        )
    return RunFolder.open(found[-1] if found else path)


def _possible(folder: Path) -> list[Path]:
    return [path for path in find_runs(folder) if "teacher" not in _learner(path)]


def _learner(path: Path) -> dict[str, Any]:
    return RunFolder.open(path).config().get("learner") or {}


def check_teacher(
    where: str, teacher: RunConfig, student: RunConfig, groups: tuple[str, ...]
) -> None:
    """Refuse a teacher of another robot, task, action map, control period or observation.

    Args:
        where: Its folder, for messages.
        teacher: Its configuration.
        student: The run that is to be taught.
        groups: What the teacher sees.

    Raises:
        SpecMismatchError: It does not fit; the message names both sides.
    """
    for part in ("env", "robot", "task"):
        kinds = [_kind(getattr(one, part)) for one in (teacher, student)]
        _same(where, f"kind of {part}", *kinds)
    if student.task is None or student.robot is None:
        _same(where, "environment", str(teacher.env), str(student.env))
        return
    theirs, ours = teacher.robot, student.robot
    assert isinstance(theirs.spec, RobotSpec)
    theirs.spec.check_compatible(ours.spec)
    maps = [one.robot.action_map(one.task).to_dict() for one in (teacher, student)]
    _same(where, "action map", *maps)
    periods = [one.physics_dt * one.decimation for one in (theirs, ours)]
    if not math.isclose(*periods, rel_tol=1e-6):
        _same(where, "control period [s]", *periods)
    for group in groups:
        terms = [getattr(one.task, group, []) for one in (teacher, student)]
        _same(where, f"observation group '{group}'", *(list(map(_told, each)) for each in terms))
        if any(term.term == _PLANT for term in terms[0]):
            ranges = [vars(one.task.randomization) for one in (teacher, student)]
            for name, value in ranges[0].items():
                what = f"task.randomization.{name}, which {_PLANT} is a part of,"
                if name not in ("pushes", "curriculum"):
                    _same(where, what, value, ranges[1][name])


def _kind(part: object) -> str:
    return "none" if part is None else component_of(part).name


def _told(term: object) -> str:
    values = vars(term)
    return f"{values['term']} x {values['scale']:g}, {values['history']} frame(s)"


def _same(where: str, what: str, teacher: object, student: object) -> None:
    if teacher != student:
        raise SpecMismatchError(
            f"learner.teacher: the teacher {where} has another {what} than this run: {teacher}, "
            f"expected {student}; train a teacher in the worlds of the student, or change the "
            "student's"
        )
