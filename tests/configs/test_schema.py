"""Composition: what is chosen, overridden, refused, saved and read back."""

import itertools
from dataclasses import dataclass

import pytest
import yaml

from configs.catalog import CONFIGS, choices, describe_choices, experiment_groups, walk_fields
from configs.compose import compose, expand, from_plain, read_only_options, read_options, to_plain
from robot_rl.core.errors import ConfigError
from robot_rl.training.runs.provenance import config_hash
from tests.compositions import composed
from tests.matrices import some

pytestmark = pytest.mark.slow


def first_alone(names):
    """All of them, of which the first runs without `--full`."""
    first, *others = names
    return some([first], others)


def every_choice() -> list[list[str]]:
    """Compositions in which every choice of every group comes once; experiments come alone."""
    together = [[f"{group}={name}" for name in choices(group)] for group in ("task", "learner")]
    rows = [list(filter(None, row)) for row in itertools.zip_longest(*together)]
    alone = ("robot", "env", "experiment")
    return [*rows, *([f"{group}={name}"] for group in alone for name in choices(group))]


@pytest.mark.parametrize("chosen", every_choice(), ids=" ".join)
def test_every_choice_composes_is_described_and_is_read_back_equal(chosen):
    composition = composed(chosen)
    for group, name in (text.split("=") for text in chosen):
        assert composition.chosen[group] == name
        assert choices(group)[name], "the first line of the YAML file says what it is"
    config = composition.config
    assert [field.path for field in walk_fields(config) if not field.meaning] == []
    again = from_plain(yaml.safe_load(yaml.safe_dump(to_plain(config))))
    assert again == config
    assert config_hash(to_plain(again)) == config_hash(to_plain(config))


@pytest.mark.parametrize("task", first_alone(choices("task")))
def test_each_task_brings_its_own_length_of_training(task):
    config = composed([f"task={task}"]).config
    assert config.training.total_steps == config.task.train_steps
    assert composed([f"task={task}", "training.total_steps=7"]).config.training.total_steps == 7
    assert composed([f"task={task}", "task.train_steps=9"]).config.training.total_steps == 9


def test_a_field_that_asks_for_nothing_or_has_what_it_needs_composes():
    assert composed(["training.prior.share=0"]).config.training.prior.share == 0
    with_data = ["training.prior.run=data", "training.prior.share=0.2"]
    assert composed(with_data).config.training.prior.share == 0.2
    composed(["cluster.collectors=0"])
    composed(["cluster.collectors=2", "cluster.address=auto"])
    preset = composed(["task=stand_up", "robot=g1"]).config.training.snapshots
    assert not preset.data, "a preset sets what goes with data for whoever names some"
    assert preset.clusters == 8


def test_a_share_beside_robots_is_that_of_what_a_person_showed():
    words = ["learner=rlpd", "training.prior.share=0.2"]
    assert compose(words, beside_robots=True).config.training.prior.share == 0.2
    with pytest.raises(ConfigError, match=r"without training\.prior\.run"):
        compose(words)


def test_command_line_wins_over_the_experiment_and_that_over_the_groups():
    plain, smoke = composed([]).config, composed(["experiment=smoke"]).config
    assert smoke.num_envs != plain.num_envs
    assert composed(["experiment=smoke", "num_envs=3"]).config.num_envs == 3
    assert smoke.task.radius == plain.task.radius


def test_groups_that_an_experiment_chooses_are_known_without_composing_it():
    assert experiment_groups("peg_with_person") == {"task", "robot", "learner"}
    assert experiment_groups("smoke") == experiment_groups("none") == set()


@pytest.mark.parametrize(
    ("asked", "robot"),
    [
        ([], "crazyflie"),
        (["task=lift"], "panda"),
        (["robot=go1", "task=velocity"], "go1"),
        (["experiment=smoke", "task=reach"], "panda"),
    ],
)
def test_a_task_brings_its_robot_where_none_is_chosen(asked, robot):
    assert composed(asked).chosen["robot"] == robot


@pytest.mark.parametrize("learner", first_alone(["bc", "flow", "act", "distill"]))
def test_a_smoke_run_of_learners_without_a_critic_is_an_experiment_of_its_own(learner):
    """`experiment=smoke` failed in Hydra's words: Key 'critic' not in 'BCConfig'."""
    with pytest.raises(ConfigError) as refused:
        composed([f"learner={learner}", "experiment=smoke"])
    told = str(refused.value)
    assert "experiment=smoke sets '" in told
    assert f"it does not go together with learner={learner}; leave experiment=smoke out" in told
    assert "smoke_cloning" in told
    small = composed([f"learner={learner}", "experiment=smoke_cloning"]).config
    assert (small.training.total_steps, small.learner.batch_size) == (640, 64)


PAIRS = {f"{task}_{robot}": (task, robot) for task in choices("task") for robot in choices("robot")}
FITTED = [path.stem for path in sorted((CONFIGS / "fitted").glob("*.yaml"))]


@pytest.mark.parametrize("name", first_alone(FITTED))
def test_a_task_fitted_to_a_robot_differs_for_it_and_yields_to_the_command_line(name):
    task, robot = PAIRS[name]  # a file of any other name would never be read
    fitted = composed([f"task={task}", f"robot={robot}"]).config.task
    brought = composed([f"task={task}"])
    plain = brought.config.task
    if brought.chosen["robot"] == robot:  # the plain task has the file too: it is for the robot
        _check_fitted_robot(name, brought.config.robot)
        return
    assert fitted != plain
    for field, own in zip(walk_fields(fitted), walk_fields(plain), strict=True):
        if isinstance(own.value, list | float) and field.value != own.value:
            told = [f"task={task}", f"robot={robot}", f"task.{own.path}={own.value}"]
            again = {f.path: f.value for f in walk_fields(composed(told).config.task)}
            assert again[own.path] == own.value
            break


def _check_fitted_robot(name, robot):
    task, of = PAIRS[name]
    scale = yaml.safe_load((CONFIGS / "fitted" / f"{name}.yaml").read_text())["robot"][
        "action_scale"
    ]
    own = yaml.safe_load((CONFIGS / "robot" / f"{of}.yaml").read_text())["action_scale"]
    assert robot.action_scale == scale != own
    told = [f"task={task}", f"robot={of}", f"robot.action_scale={own}"]
    assert composed(told).config.robot.action_scale == own


def test_the_help_says_which_robot_a_task_brings():
    lines = {line.split()[0]: line for line in describe_choices().splitlines() if line[:1] == " "}
    assert lines["lift"].endswith("Brings robot=panda.")
    assert "Brings" not in lines["hover"]


def test_saved_config_takes_overrides_of_fields_but_not_of_groups():
    saved = to_plain(composed([]).config)
    assert from_plain(saved, ["task.radius=3"]).task.radius == 3
    with pytest.raises(ConfigError, match="would replace the task of a run"):
        from_plain(saved, ["task=tracking"])
    with pytest.raises(ConfigError, match=r"did you mean 'task\.radius'"):
        from_plain(saved, ["task.radus=3"])


@pytest.mark.parametrize("learner", ["sac", "cql", "h2o"])
def test_a_config_saved_when_every_sac_had_all_penalties_is_read_as_its_learner(learner):
    config = composed([f"learner={learner}"]).config
    saved = to_plain(config)
    off = {"conservatism": {"weight": 0.0}, "dynamics_gap": {"weight": 0.0}}
    saved["learner"] = {**off, **saved["learner"]}
    assert from_plain({**saved, "schemas": {**saved["schemas"], "learner": "sac"}}) == config


def test_names_of_before_are_read_in_saved_configs_and_on_the_command_line():
    words = ["learner=wsrl", "learner.lr_schedule.decay=9", "learner.lr_schedule.end=0"]
    config = composed(words).config
    saved = to_plain(config)
    groups = {name: saved["learner"].pop(name) for name in ("target", "actor_steps")}
    schedule = saved["learner"].pop("lr_schedule")
    saved["learner"] |= {
        "learning_rate_decay": schedule["decay"], "learning_rate_end": schedule["end"],
        "target_members": groups["target"]["members"], "target_replacement": True,
        "entropy_in_target": False, "actor_on_all": True, "entropy_at": "next_obs",
    }  # fmt: skip
    assert from_plain(saved) == config
    old = ["learner.learning_rate_decay=9", "learner.learning_rate_end=0"]
    assert composed(["learner=wsrl", *old]).config == config
    other = composed(["learner=iql", "learner.target_members=2"]).config  # has it still
    assert other.learner.target_members == 2


def test_saved_config_of_an_unknown_schema_is_refused():
    saved = to_plain(composed([]).config)
    with pytest.raises(ConfigError, match=r"task 'hoverr' is unknown.*'hover'"):
        from_plain({**saved, "schemas": {**saved["schemas"], "task": "hoverr"}})
    with pytest.raises(ConfigError, match=r"does not fit.*colour"):
        from_plain({**saved, "colour": "red"})


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("task=hovr", r"task 'hovr' is unknown \(did you mean 'hover'\?\); known: .*hover"),
        ("trainng.total_steps=5", "did you mean 'training.total_steps'"),
        ("task.start.velocty=1", "did you mean 'task.start.velocity'"),
        ("robot.plants.paper.mas=1", "did you mean 'robot.plants.paper.mass'"),
        ("num_envs=1.5", "num_envs must be a whole number"),
        ("learner.gamma=high", "learner.gamma must be a number"),
        ("logging.quiet=perhaps", "logging.quiet must be true or false"),
        ("logging.wandb=offlin", "did you mean 'offline'"),
        ("learner.actor.hidden=16", r"must be a list of numbers, such as .*=\[1,2\]"),
        ("training=5", "give them one by one as training.<field>"),
        ("seed.x=5", "seed is a plain value"),
        ("task.actor.0=5", "task.actor is a list"),
        ("num_envs=-3", "num_envs must be at least 1, got -3"),
        ("learner.gamma=1.5", r"learner.gamma must lie in \[0, 1\], got 1.5"),
        ("task.radius=nan", "task.radius is not a number"),
        ("robot.plant=papr", "did you mean 'paper'"),
        ("seed=1,2", "sweep over them with -m"),
        ("seed=(1", "cannot be read"),
        ("~seed=1", "would delete a field"),
    ],
)
def test_mistake_is_one_sentence_that_says_what_is_right(override, told):
    with pytest.raises(ConfigError, match=told) as caught:
        compose([override])
    assert "\n" not in str(caught.value)


def test_values_are_taken_as_people_write_them():
    config = compose(
        ["training.total_steps=2e6", "learner.actor.hidden=[8,8]", "task.reward.initial.rates=-1"]
    ).config
    assert config.training.total_steps == 2_000_000
    assert config.learner.actor.hidden == [8, 8]
    assert config.task.reward.initial["rates"] == -1
    assert len(config.task.reward.initial) > 1  # the others stay


def test_sweep_is_every_combination():
    jobs = expand(["task=hover,tracking", "seed=range(2)", "num_envs=4"])
    assert jobs == [
        ["task=hover", "seed=0", "num_envs=4"],
        ["task=hover", "seed=1", "num_envs=4"],
        ["task=tracking", "seed=0", "num_envs=4"],
        ["task=tracking", "seed=1", "num_envs=4"],
    ]
    assert expand(["learner.actor.hidden=[8,8]"]) == [["learner.actor.hidden=[8,8]"]]


@dataclass(kw_only=True)
class Options:
    episodes: int = 10
    run: str = ""


def test_options_of_a_command_are_told_apart_from_fields_of_the_run():
    options, rest = read_options(Options, ["episodes=3", "task.radius=2", "run=runs/a-1_b"])
    assert (options, rest) == (Options(episodes=3, run="runs/a-1_b"), ["task.radius=2"])
    with pytest.raises(ConfigError, match=r"option 'episods' is unknown \(did you mean 'episodes'"):
        read_options(Options, ["episods=3"])
    with pytest.raises(ConfigError, match="episodes must be a whole number"):
        read_options(Options, ["episodes=few"])


def test_command_that_takes_options_only_refuses_fields_of_a_run():
    assert read_only_options(Options, ["episodes=3"]) == Options(episodes=3)
    with pytest.raises(
        ConfigError, match=r"option 'task\.radius' is unknown; known: episodes, run"
    ):
        read_only_options(Options, ["episodes=3", "task.radius=2"])


def test_run_that_is_older_than_the_choice_of_environments_is_of_our_own_worlds():
    saved = to_plain(composed(["task=tracking"]).config)
    del saved["env"], saved["schemas"]["env"]
    assert to_plain(from_plain(saved)) == to_plain(composed(["task=tracking"]).config)


def test_environment_of_its_own_robot_takes_the_place_of_task_and_robot():
    composition = composed(["env=gymnasium", "env.id=Hopper-v5"])
    assert (composition.config.task, composition.config.robot) == (None, None)
    assert {"env", "learner"} <= set(composition.chosen)
    assert not {"task", "robot"} & set(composition.chosen)
    assert to_plain(from_plain(to_plain(composition.config))) == to_plain(composition.config)
