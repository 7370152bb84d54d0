"""What a resumed run may change, and the sentence for what it may not."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from configs.catalog import walk_fields
from configs.compose import compose

SCRIPTS = Path(__file__).parents[4] / "scripts"


@pytest.fixture
def resume(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of `scripts/runtime`."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("runtime.sessions.resume")


@pytest.mark.parametrize("learner", ["sac", "td3", "flash_sac", "iql", "qc"])
def test_every_field_may_change_or_has_a_reason(resume: Any, learner: str) -> None:
    fields = [field.path for field in walk_fields(compose([f"learner={learner}"]).config)]
    assert "training.snapshots.clusters" in fields
    for path in fields:
        assert resume.is_free(path) or resume.why_fixed(path)


def test_what_only_says_where_things_lie_may_change(resume: Any) -> None:
    assert resume.is_free("training.snapshots.data")
    assert not resume.is_free("training.snapshots.steps")
    assert "beginning of the run" in resume.why_fixed("training.snapshots.steps")
