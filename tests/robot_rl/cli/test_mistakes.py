"""A hundred mistakes, on the command line and from Python: one sentence each, no traceback."""

import re
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
import torch

import robot_rl
from configs.schema import Component, register
from hardware.registry import register_controller, register_driver
from robot_rl.cli.new import write_project
from robot_rl.core.errors import RobotRLError
from robot_rl.core.observation import TERMS, Mirrored, actor_term
from robot_rl.core.plugins import package_file
from sim.experts import register_expert
from sim.tasks.flights.hover import HoverConfig, HoverTask

COMPOSED = {
    # overrides of `robot-rl train --cfg job`: part of the sentence
    "task=hoover": "did you mean 'hover'",
    "task=": "task '' is unknown; known:",
    "task=[hover]": "task '['hover']' is unknown",
    "robot=crazyfly": "did you mean 'crazyflie'",
    "learner=sacc": "did you mean 'sac'",
    "learner=ppo": "learner 'ppo' is unknown (did you mean 'expo'?); known: act",
    "env=gymnasum": "did you mean 'gymnasium'",
    "experiment=smokes": "did you mean 'smoke'",
    "task=hover,tracking": "asks for several values; sweep over them with -m",
    "tsak=hover": "field 'tsak' is unknown (did you mean 'task'?)",
    "leaner.gamma=0.9": "field 'leaner' is unknown (did you mean 'learner.gamma'?)",
    "learner.gama=0.9": "did you mean 'learner.gamma'",
    "learner.actor.hiddn=[8]": "did you mean 'learner.actor.hidden'",
    "training.total_step=1": "did you mean 'training.total_steps'",
    "task.radios=1": "did you mean 'task.radius'",
    "robot.spec.nyme=x": "did you mean 'robot.spec.name'",
    "gamma=0.9": "did you mean 'learner.gamma'",
    "learner.gamma.x=1": "learner.gamma is a plain value",
    "task.actor.0=1": "which is given whole",
    "learner=5": "learner '5' is unknown",
    "learner.gamma=high": "learner.gamma must be a number",
    "learner.batch_size=2.5": "learner.batch_size must be a whole number",
    "video=maybe": "video must be true or false",
    "learner.actor.hidden=wide": "learner.actor.hidden must be a list of numbers",
    "learner.actor.hidden=[a]": "learner.actor.hidden must be a list of numbers",
    "learner.reward_scale=some": "value of learner.reward_scale 'some' is unknown",
    "training=5": "training has fields; give them one by one",
    "learner.gamma=nan": "learner.gamma must lie in [0, 1], got nan",
    "task.radius=nan": "radius",
    "learner.gamma=2": "gamma",
    "learner.gamma=-0.1": "gamma",
    "learner.batch_size=0": "batch_size",
    "learner.actor_lr=-1": "actor_lr",
    "learner.tau=inf": "tau",
    "learner.actor.hidden=[0]": "hidden",
    "learner.actor.hidden=[]": "hidden",
    "num_envs=0": "num_envs must be at least 1, got 0",
    "num_envs=-3": "num_envs must be at least 1, got -3",
    "threads=0": "threads must be at least 1, got 0",
    "seed=-1": "seed must be at least 0, got -1",
    "runs=": "runs is empty",
    "rank_timeout_seconds=0": "rank_timeout_seconds must be above 0",
    "training.total_steps=-5": "total_steps",
    "training.evaluation_interval=0": "evaluation_interval",
    "training.evaluation_episodes=0": "evaluation_episodes",
    "training.replay_capacity=0": "replay_capacity",
    "training.updates_per_step=-1": "updates_per_step",
    "training.checkpoint_interval=-1": "checkpoint_interval",
    "cluster.address=auto": "cluster.address=auto does nothing without cluster.collectors",
    "cluster.rows=512": "set cluster.collectors too, or leave cluster.rows out",
    "training.snapshots.steps=9": "does nothing without training.snapshots.data",
    "training.snapshots.value=reward_so_far": "value=reward_so_far does nothing without",
    "training.start.checkpoint=best": "does nothing without training.start.run",
    "training.prior.share=0.2": "does nothing without training.prior.run",
    "training.offline.held_out=0.1": "does nothing without training.offline.updates",
    "training.demonstrations.episodes=9": "does nothing without training.demonstrations.data",
    "task.episode_length=0": "episode_length",
    "task.episode_length=-1": "episode_length",
    "task.success_window=100": "success_window",
    "task.start.attitude_deg=-5": "attitude_deg",
    "robot.physics_dt=0": "physics_dt",
    "robot.decimation=0": "decimation",
    "robot.plant=nobody": "plant",
    "task.actor=[{trem: x}]": "trem",
    "task.actor=[{term: last_action, history: 0}]": "history must be at least 1, got 0",
    "task.actor=[{term: last_action, clip: 0}]": "clip must be positive",
    "task.actor=7": "task.actor",
    "logging.wandb=always": "value of logging.wandb 'always' is unknown",
    "~task": "not an override",
    "~task=hover": "would delete a field",
    "hover": "'hover' is not an override; expected key=value",
    "=hover": "'=hover' is not an override",
    "task=hover(": "cannot be read",
    "env=gymnasium task.radius=1": "has no meaning with env=gymnasium",
    "hydra.searchpath=[x]": "",
    "hydra/launcher=joblib": "add -m",
    "--cofig=job": "'--cofig=job' is not a flag",
    "--config-dir=nowhere": "it is no folder",
}
COMMANDS = {
    # a whole line: part of the sentence
    "trein": "did you mean 'train'",
    "train device=gpu": "device 'gpu' is unknown",
    "train device=cuda:99": "device 'cuda:99' was asked for",
    "train task=reach robot=crazyflie": "whose end effector is measured; choose robot=panda or",
    "train task=hover robot=panda": "is for a multirotor; choose robot=crazyflie or robot=x500",
    "train env.cameras=[frnt]": "did you mean 'front'",
    "train task.actor=[{term: positon_error_w}]": "did you mean 'position_error_w'",
    "train task.actor=[]": "at least one term",
    "train task.reward.initial.alife=1": "alife",
    "train task=reach robot.model=nowhere.xml": "no model file",
    "train task=reach robot.model=package://nowhere/arm.xml": "the package 'nowhere' is not inst",
    "train env=gymnasium env.id=Hoper-v5": "Hoper",
    "train resume=nowhere": "'nowhere' is not a run: it does not exist",
    "train resume=.": "'.' is not a run: it has no config.yaml",
    "train learner=distill": "learner=distill needs a teacher",
    "train training.prior.run=nowhere": "there is no 'nowhere'",
    "evaluate run=nowhere": "is not a run",
    "evaluate": "run",
    "evaluate ruun=x": "did you mean 'run'",
    "export run=nowhere": "is not a run",
    "export run=latest": "there is no run in runs",
    "deploy": "which policy? bundle=runs/<run>/bundle",
    "deploy bundle=nowhere": "nowhere",
    "deploy bundle=x driver=twins": "did you mean 'twin'",
    "deploy bundle=x controller=mine": "controller 'mine' is unknown; known: none",
    "deploy bundle=x driver_options={port:1}": "'driver_options' are for a plug-in's driver",
    "deploy bundle=x mode=shadows": "did you mean 'shadow'",
    "deploy bundle=x seconds=-1": "seconds must be >= 0",
    "deploy bundle=x domain=999": "domain must lie in 0 to",
    "collect expert=nobody out=data": "expert 'nobody' is unknown",
    "collect task=gates out=data": "GatesTask has none",
    "runs show nowhere": "nowhere",
    "critics run=nowhere": "is not a run",
    "view task=hover agent=nobody": "nobody",
    "doctor bundle=nowhere": "",
    "new": "what is it to be called",
    "new project": "what is it to be called",
    "new task mine": "new 'task' is unknown",
    "new project My-Arm": "such as 'my_arm'",
    "new project 2arms": "cannot be the name of a package",
    "new project class": "no word of Python",
    "new project json": "is the name of a module that is there already",
    "new project sim": "is the name of a module that is there already",
    "new project there": "there exists already",
    "completion fish": "for which shell?",
    "--config-dir": "--config-dir names no folder",
    "--config-dir nowhere train": "it is no folder",
    "record repair nowhere": "nowhere is not a folder; expected the folder of one recording, which",
    "evaluate zoo:panda-reach out=/dev/null/here": "/dev/null is a file; expected a folder",
    "export bundle=zoo:panda-reach target=c99 name=int": "'int' is a word of C itself",
    "export run=nowhere target=c99 name=2bad": "'2bad' cannot be a name in C",
}


def split(line):
    """Words of a line; spaces within brackets separate none."""
    return re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^ ])+", line)


@pytest.mark.parametrize("words", COMPOSED)
def test_mistake_in_a_run_is_one_sentence(refused, here, words):
    told = refused("train", *split(words), "--cfg", "job")
    assert COMPOSED[words] in told
    assert len(told) < 1500


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_mistake_in_a_command_is_one_sentence(command, here, line):
    Path("there").mkdir()
    name, *words = split(line)
    if line.startswith("doctor"):
        assert "nowhere" in command(name, *words, exits=1).out
        return
    answer = command(name, *words, exits=2)
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert COMMANDS[line] in answer.err
    assert not Path("runs").exists()


class Discrete(gymnasium.Env):
    """Two buttons."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Text(3)


NOTHING: Any = print


def term(inputs):
    return inputs.last_action


def step_with(action):
    env = robot_rl.make_env("task=hover", num_envs=2)
    env.reset(seed=0)
    env.step(action)


def half_a_row():
    env = robot_rl.make_env("task=hover", num_envs=2)
    robot_rl.make_replay(env, robot_rl.make_learner(env), capacity=cast("Any", 10.5))


CALLS = {
    "train a task that is none": (lambda: robot_rl.train("task=hoover"), "did you mean 'hover'"),
    "train no words": (lambda: robot_rl.train("hover"), "expected key=value"),
    "train no time": (lambda: robot_rl.train(total_steps=-1), "total_steps"),
    "train an env of no id": (lambda: robot_rl.train(env="Hoper-v5"), "Hoper"),
    "train a number": (lambda: robot_rl.train(env=5), "env"),
    "train what takes text": (lambda: robot_rl.train(env=Discrete), "action"),
    "no envs": (lambda: robot_rl.make_env(num_envs=0), "num_envs"),
    "a device that is none": (lambda: robot_rl.make_env(device="gpu"), "device 'gpu' is unknown"),
    "a run that is none": (lambda: robot_rl.load_run("nowhere"), "is not a run"),
    "no run yet": (lambda: robot_rl.load_run(), "there is no run in runs"),
    "a bundle that is none": (lambda: robot_rl.load_bundle("nowhere"), "is not a policy bundle"),
    "a bundle of no path": (
        lambda: robot_rl.load_bundle(cast("Any", 3)), "expected the folder of a bundle"),
    "a learner for nothing": (
        lambda: robot_rl.make_learner(cast("Any", None)), "expected an environment"),
    "a replay of half a row": (half_a_row, "capacity must be a whole number"),
    "an action of numpy": (lambda: step_with(np.zeros((2, 4), np.float32)), "expected a tensor"),
    "an action of no floats": (
        lambda: step_with(torch.zeros(2, 4, dtype=torch.int64)), "expected torch.float32, got"),
    "a group that is none": (
        lambda: register(Component("tasks", "a", HoverConfig, HoverTask)), "did you mean 'task'"),
    "a config of another": (
        lambda: register(Component("task", "a", HoverConfig, HoverTask)), "that of task 'hover'"),
    "a config that is none": (
        lambda: register(Component("task", "a", int, HoverTask)), "expected a dataclass"),
    "a term of ours": (
        lambda: TERMS.add("last_action", term), "exists already, from robot_rl"),
    "a term of no name": (
        lambda: actor_term(Mirrored.same)(lambda inputs: inputs.last_action), "cannot be called"),
    "an expert of ours": (
        lambda: register_expert("lift", HoverTask, NOTHING), "exists already"),
    "a driver of ours": (lambda: register_driver("fake", NOTHING), "exists already"),
    "a controller of no name": (lambda: register_controller("my law", NOTHING), "cannot be called"),
    "a project that is there": (lambda: write_project("there"), "there exists already"),
    "a file of no package": (lambda: package_file("package://nowhere/x"), "is not installed here"),
    "a file of nothing": (lambda: package_file("package://numpy"), "expected package://"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", CALLS)
def test_mistake_in_a_program_is_one_sentence(here, what):
    Path("there").mkdir()
    call, told = CALLS[what]
    with pytest.raises(RobotRLError) as caught:
        call()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_there_are_a_hundred_of_them():
    assert len(COMPOSED) + len(COMMANDS) + len(CALLS) >= 100
