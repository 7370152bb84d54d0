"""Offline phase of `robot-rl learn`: from what `robot-rl teleop` recorded with the same words."""

import pytest

from robot_rl.cli.main import main
from robot_rl.link.weights import WeightStore
from robot_rl.training.runs.run_folder import RunFolder, RunState
from robot_rl.training.storage.checkpoint import CheckpointStore
from tests.robot_rl.cli.learning.test_learn import learning, only_run
from tests.robot_rl.link.linked import until

SAME = ("experiment=peg_with_person", "twin.success_reward=1", "task.episode_length=1")
UPDATES = 400


def test_the_experiment_goes_with_the_learners_of_its_proof(capsys):
    """Numbers of HIL-SERL stood in it, which others have no fields for."""
    for learner in ("silri", "expo", "rlpd"):
        with pytest.raises(SystemExit):  # after composition: there are no such demonstrations
            main(["learn", SAME[0], f"learner={learner}", "training.prior.run=absent"])
        assert "there is no 'absent'" in capsys.readouterr().err


@pytest.mark.slow
def test_silri_learns_from_demonstrations_of_teleop_before_any_robot_moves(tmp_path, capsys):
    """Its learner is killed half-way, and goes on; `training.total_steps=0` ends it there."""
    data = tmp_path / "peg"
    main(["teleop", *SAME, "seconds=1", "episodes=1", "skill=perfect", f"out={data}"])
    words = [
        "role=learner", "address=127.0.0.1:50188", *SAME, "learner=silri", "person=none",
        f"training.prior.run={data}", f"training.offline.updates={UPDATES}",
        "training.total_steps=0", "learner.batch_size=8", "training.checkpoint_seconds=0.2",
        "logging.interval_seconds=0.2", "logging.tensorboard=false",
        *(f"learner.{part}.hidden=[8]" for part in ("actor", "critic", "expert", "multiplier")),
    ]  # fmt: skip
    with learning(tmp_path, *words) as process:
        until(lambda: list(tmp_path.glob("runs/*/checkpoints/step_*")), 200)
        process.kill()
        process.wait()
    run = only_run(tmp_path)
    weights = WeightStore(run / "weights")
    assert weights.newest == 0, "no half of the phase ever acts"
    said = (tmp_path / "output.txt").read_text()
    assert f"learns from demonstrations, 0 of {UPDATES} updates" in said
    capsys.readouterr()
    main(["learn", "role=learner", f"run={run}", "training.checkpoint_seconds=300"])
    said = capsys.readouterr().out
    begun = int(said.partition("learns from demonstrations, ")[2].split()[0])
    assert 0 < begun < UPDATES, "it went on from its checkpoint"
    assert f"learned from demonstrations: {UPDATES} updates" in said
    assert weights.newest == 1
    state = CheckpointStore(run / "checkpoints", read_only=True).load().state
    assert (state["offline_updates"], state["updates"], state["steps"]) == (UPDATES, 0, 0)
    assert RunFolder.open(run).status().state is RunState.FINISHED
