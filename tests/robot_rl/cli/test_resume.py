"""What a resumed run may change, and the sentence for what it may not."""

import importlib
from typing import Any

import pytest

from configs.catalog import walk_fields
from configs.compose import to_plain
from robot_rl.core.errors import ConfigError
from robot_rl.training.runs.run_folder import RunFolder, RunName
from tests.compositions import composed

pytestmark = pytest.mark.slow


@pytest.fixture
def resume(monkeypatch: pytest.MonkeyPatch) -> Any:
    return importlib.import_module("robot_rl.cli.resume")


@pytest.mark.parametrize("learner", ["sac", "td3", "flash_sac", "iql", "qc"])
def test_every_field_may_change_or_has_a_reason(resume, learner):
    fields = [field.path for field in walk_fields(composed([f"learner={learner}"]).config)]
    assert "training.snapshots.clusters" in fields
    for path in fields:
        assert resume.is_free(path) or resume.why_fixed(path)


def test_what_only_says_where_things_lie_may_change(resume):
    assert resume.is_free("training.snapshots.data")
    assert not resume.is_free("training.snapshots.steps")
    assert "beginning of the run" in resume.why_fixed("training.snapshots.steps")


@pytest.mark.parametrize("name", ["training.prior.run", "training.snapshots.data"])
def test_data_may_move_but_neither_come_nor_go(resume, tmp_path, name):
    def run(kind: str, *overrides: str) -> RunFolder:
        config = to_plain(composed(["device=cpu", *overrides]).config)
        named = RunName(task="hover", robot="crazyflie", learner="sac", seed=0)
        return RunFolder.create(tmp_path / kind, named, config, {})

    with run("mixed", f"{name}=here") as mixed, run("plain") as plain:
        assert resume.resumed_config(mixed, [f"{name}=there"])
        with pytest.raises(ConfigError, match=r"from 'here' to '' on resume.*goes on with them"):
            resume.resumed_config(mixed, [f"{name}="])
        with pytest.raises(ConfigError, match=r"from '' to 'there' on resume.*without any"):
            resume.resumed_config(plain, [f"{name}=there"])
