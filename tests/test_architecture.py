"""The rooms of the house and the arrows between them; fails on a forbidden import or a circle."""

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.architecture import circles, forbidden_arrows, loaded_packages, read_modules

ROOT = Path(__file__).resolve().parent.parent
WINGS = ("robot_rl", "sim", "hardware", "policies", "configs", "scripts")

BENEATH = tuple(
    f"robot_rl.{room}"
    for room in ("core", "buffers", "learners", "datasets", "training", "link", "rewards")
)
"""All of robot_rl but its roof, `robot_rl.cli`, which nothing that is shipped imports."""

ALLOWED = {
    # room: what it may import besides itself (the longest prefix that fits is a file's room)
    "robot_rl": ("robot_rl.core",),
    "robot_rl.core": (),
    "robot_rl.buffers": ("robot_rl.core",),
    "robot_rl.learners": ("robot_rl.core", "policies"),
    "robot_rl.datasets": ("robot_rl.core", "robot_rl.training.storage"),
    "robot_rl.link": ("robot_rl.core", "robot_rl.training.storage"),
    "robot_rl.rewards": (
        "robot_rl.core",
        "robot_rl.datasets",
        "robot_rl.learners",
        "robot_rl.training.reporting",
        "robot_rl.training.runs",
        "robot_rl.training.storage",
        "policies",
    ),
    "robot_rl.training": (
        "robot_rl.core",
        "robot_rl.buffers",
        "robot_rl.datasets",
        "robot_rl.link",
    ),  # no learners
    "robot_rl.training.storage": ("robot_rl.core",),
    "policies": ("robot_rl.core",),
    "sim": ("robot_rl.core",),
    "hardware": (*BENEATH, "policies.bundle", "policies.cameras", "policies.runner"),
    "configs": (*BENEATH, "sim", "hardware", "policies"),
    "robot_rl.cli": ("robot_rl", "sim", "hardware", "policies", "configs"),  # the roof
    "scripts": ("robot_rl", "sim", "hardware", "policies", "configs"),
}

ON_THE_ROBOT = {
    # importing this loads no more than these packages, whatever it imports itself
    "robot_rl.core.errors": set(),
    "robot_rl.core.quaternion": {"numpy", "array_api_compat"},
    "robot_rl.core.robot": {"numpy", "array_api_compat"},
    "robot_rl.core.robot_driver": {"numpy", "array_api_compat"},
    "robot_rl.core.observation": {"numpy", "array_api_compat"},
    "robot_rl.core.action": {"numpy", "array_api_compat"},
    "robot_rl.core.pixels": {"numpy"},
    "robot_rl.core.pose_target": {"numpy", "array_api_compat"},
    "robot_rl.core.process": set(),
    "robot_rl.link.spool": {"numpy", "pyarrow"},
    "robot_rl.link.client": {"numpy", "pyarrow", "grpc", "safetensors"},
    "robot_rl.link.server": {"numpy", "pyarrow", "grpc", "safetensors"},
    "policies.bundle": {"numpy", "array_api_compat", "onnxruntime"},
    "policies.runner": {"numpy", "array_api_compat", "onnxruntime"},
    "policies.c99.source": {"numpy", "array_api_compat", "onnxruntime", "onnx"},
}

ON_THE_ROBOT |= {  # the loop, every control law, driver and teleoperation, also those to come
    ".".join(path.relative_to(ROOT).with_suffix("").parts): {"numpy", "array_api_compat"}
    for room in ("control", "controllers", "drivers", "teleop")
    for path in sorted((ROOT / "hardware" / room).rglob("[a-z]*.py"))
}

ON_THE_ROBOT |= {
    "hardware.teleop.actor_socket": {"numpy", "array_api_compat"},
    "hardware.console.server": {"numpy", "array_api_compat", "aiohttp", "PIL"},
}

EVERYWHERE = {"numpy", "torch", "array_api_compat"}
"""Packages that any file may import."""

HOMES = {
    # package: wings that may wrap it, each in one file; robot_rl.cli counts as a wing
    "IPython": {"robot_rl"},
    "PIL": {"hardware", "scripts"},
    "aiohttp": {"hardware", "scripts"},
    "av": {"sim", "robot_rl", "scripts"},
    "envpool": {"sim"},
    "grpc": {"robot_rl"},
    "gymnasium": {"sim", "configs", "scripts"},
    "h5py": {"robot_rl"},
    "hydra": {"configs", "robot_rl.cli", "scripts"},
    "joblib": {"robot_rl.cli"},
    "isaaclab": {"sim"},
    "isaaclab_tasks": {"sim"},
    "l2f": {"scripts"},
    "matplotlib": {"robot_rl", "sim", "robot_rl.cli", "scripts"},
    "mjlab": {"sim"},
    "mujoco": {"sim", "scripts"},
    "mujoco_menagerie": {"sim"},
    "mujoco_warp": {"sim"},
    "omegaconf": {"configs", "robot_rl.cli"},
    "onnx": {"policies"},
    "onnxruntime": {"policies"},
    "onnxscript": {"policies"},
    "psutil": {"scripts", "robot_rl", "robot_rl.cli"},
    "pyarrow": {"robot_rl"},
    "ray": {"robot_rl"},
    "rclpy": {"hardware"},
    "rich": {"robot_rl"},
    "rosbags": {"hardware"},
    "ruamel": {"hardware"},  # YAML of rosbags, with which it comes
    "rsl_rl": {"sim", "scripts"},
    "safetensors": {"robot_rl", "policies"},
    "sbx": {"scripts"},
    "setuptools": {"hardware"},
    "stable_baselines3": {"scripts"},
    "tensorboard": {"robot_rl", "scripts"},
    "tensordict": {"sim"},
    "transformers": {"policies"},
    "unilab": {"scripts"},
    "torch.distributed": {"robot_rl"},
    "viser": {"hardware", "sim"},
    "wandb": {"robot_rl"},
    "warp": {"sim"},
    "yaml": {"configs", "hardware", "policies", "robot_rl", "robot_rl.cli", "scripts"},
}

SEVERAL_FILES = {
    # (package, wing): files or folders that share it, because one file would hold two ideas
    ("aiohttp", "hardware"): {"hardware.console.page_socket", "hardware.console.server"},
    ("gymnasium", "sim"): {
        "sim.adapters.envpool_env",
        "sim.adapters.gymnasium_env",
        "sim.adapters.gymnasium_film",
        "sim.adapters.gymnasium_make",
        "sim.adapters.gymnasium_vector",
        "sim.adapters.gymnasium_mujoco",
        "sim.adapters.torch_envs.isaaclab_make",
    },
    ("hydra", "configs"): {"configs.compose", "configs.overrides"},
    ("omegaconf", "configs"): {"configs.compose", "configs.overrides"},
    ("onnx", "policies"): {
        "policies.c99.network",
        "policies.joined_graph",
        "policies.onnx_metadata",
    },
    ("mujoco", "sim"): {
        "sim.cameras.flight_scene",
        "sim.cameras.gl_renderer",  # opens GL in the process that steps, unlike a film's child
        "sim.adapters.gymnasium_mujoco",
        "sim.rendering.canvas",
        "sim.rendering.recording",
        "sim.rendering.stage",
        "sim.rendering.flight_scene",
        "sim.rendering.flight_stage",
        "sim.physics.joint_layout",
        "sim.physics",  # the room that hides which engine runs
        "sim.rendering.scene",
        "sim.rendering.shown",
    },
    ("onnxruntime", "policies"): {
        "policies.bundle",
        "policies.network_check",
        "policies.runner",
    },
    ("psutil", "robot_rl"): {"robot_rl.training.prior", "robot_rl.training.ranks"},
    ("safetensors", "robot_rl"): {
        "robot_rl.training.storage.checkpoint",
        "robot_rl.training.storage.segments",
        "robot_rl.link.weights",
        "robot_rl.rewards.artefact",
    },
    ("pyarrow", "robot_rl"): {"robot_rl.datasets.files.parquet", "robot_rl.link.records"},
    ("viser", "sim"): {"sim.rendering.browser", "sim.rendering.browser_scene"},
    ("warp", "sim"): {"sim.physics"},
}

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "tools"}

# Folders that one person's machine has; /usr, /tmp, /dev, /etc and /opt/ros are everyone's.
ONE_MACHINE = re.compile(r"(?<![\w.~$}/:-])/(?:home|root|Users|work|workspace|mnt|media|srv)/\w")
PARENT_PATH = re.compile(r"(?<![\w./])(?:\.\./)+[\w.-]+")


@pytest.fixture(scope="module")
def modules():
    return read_modules(ROOT, WINGS)


@pytest.fixture(scope="module")
def texts():
    """Text of every file that belongs to the repository, by path relative to it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.split("\n") if listed.returncode == 0 else []
    if not names:  # unpacked from an archive
        names = [
            str(path.relative_to(ROOT))
            for w in (*WINGS, "tests")
            for path in (ROOT / w).rglob("*.*")
        ]
    found = {}
    for name in filter(None, names):
        path = ROOT / name
        if path.is_file() and b"\0" not in (head := path.read_bytes()):
            found[Path(name)] = head.decode("utf-8", errors="replace")
    return found


@pytest.fixture(scope="module")
def sources(texts):
    return {path: text for path, text in texts.items() if path.suffix == ".py"}


def test_arrows_run_downward_only(modules):
    assert len(modules) > 5
    assert forbidden_arrows(modules, ALLOWED) == []


def test_nothing_imports_in_a_circle(modules):
    assert circles(modules) == []


@pytest.mark.parametrize("name", ON_THE_ROBOT)
def test_a_robot_computer_needs_neither_torch_nor_simulators_for(name, modules):
    assert name in modules
    loaded = loaded_packages(modules, name)
    assert {p: by for p, by in loaded.items() if p not in ON_THE_ROBOT[name]} == {}


def test_each_package_of_others_is_wrapped_in_one_file_per_wing(modules):
    users = defaultdict(set)
    for module in modules.values():
        for package in module.foreign - EVERYWHERE:
            users[package, module.wing].add(module.name)
    strangers = {key: found for key, found in users.items() if key[1] not in HOMES.get(key[0], ())}
    assert strangers == {}, "imported where HOMES does not say so"
    twice = {
        key: found
        for key, found in users.items()
        if len(found) > 1 and not all(_is_in(name, SEVERAL_FILES.get(key, set())) for name in found)
    }
    # commands are leaves: each may open the packages of its own demonstration or measurement
    assert {
        key: found for key, found in twice.items() if key[1] not in ("robot_rl.cli", "scripts")
    } == {}


def _is_in(name: str, places: set[str]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def test_init_files_hand_names_on_and_do_nothing_else(sources):
    effects = {
        str(path): ast.unparse(node).splitlines()[0]
        for path, text in sources.items()
        if path.name == "__init__.py"
        and path != Path("robot_rl/__init__.py")  # looks up the version
        for node in ast.parse(text).body
        if not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    }
    assert effects == {}


def test_files_are_named_after_their_theme(sources):
    assert [str(path) for path in sources if path.stem in VAGUE_NAMES] == []


def test_no_file_names_a_folder_of_one_machine(texts):
    found = {
        str(path): match[0] for path, text in texts.items() if (match := ONE_MACHINE.search(text))
    }
    assert found == {}


def test_no_file_points_out_of_the_repository(texts):
    found = {}
    for path, text in texts.items():
        for match in PARENT_PATH.finditer(text):
            target = (ROOT / path).parent / match[0]
            if not target.resolve().is_relative_to(ROOT):
                found[str(path)] = match[0]
    assert found == {}


class TestTheCheckItself:
    """A check that cannot fail proves nothing: each rule finds a planted fault."""

    @pytest.fixture
    def plant(self, tmp_path):
        def write(files):
            for name, text in files.items():
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return read_modules(tmp_path, WINGS)

        return write

    @pytest.mark.parametrize(
        ("file", "line", "target"),
        [
            ("robot_rl/learners/sac.py", "import robot_rl.buffers.replay", "robot_rl.buffers"),
            ("robot_rl/training/a.py", "from robot_rl.learners import sac", "robot_rl.learners"),
            (
                "sim/late.py",
                "import importlib\nimportlib.import_module('hardware.io')",
                "hardware.io",
            ),
            ("hardware/loop.py", "from policies.networks.mlp import Mlp", "policies.networks.mlp"),
            ("policies/local.py", "def f():\n    from sim import tasks", "sim"),
            ("policies/typed.py", "if TYPE_CHECKING:\n    from sim.env import Env", "sim.env"),
            ("configs/schema.py", "from robot_rl.cli import components", "robot_rl.cli"),
            ("robot_rl/cli/train.py", "from scripts.bench import timing", "scripts.bench"),
        ],
    )
    def test_forbidden_import_is_found(self, plant, file, line, target):
        faults = forbidden_arrows(plant({file: line}), ALLOWED)
        assert len(faults) == 1
        assert faults[0].startswith(f"{file[:-3].replace('/', '.')} imports {target}")

    def test_module_outside_every_room_is_found(self, plant):
        modules = plant({"sim/env.py": "import torch"})
        assert "sim.env is in no room" in forbidden_arrows(modules, {"hardware": ()})[0]

    def test_relative_import_is_resolved(self, plant):
        text = "from ..buffers import replay\nfrom .td3 import Td3"
        files = {"learners/sac.py": text, "learners/td3.py": "", "buffers/replay.py": ""}
        modules = plant({f"robot_rl/{name}": text for name, text in files.items()})
        assert modules["robot_rl.learners.sac"].own == {
            "robot_rl.buffers.replay",
            "robot_rl.learners.td3",
        }

    def test_circle_is_found_once_and_spelt_out(self, plant):
        modules = plant(
            {
                "sim/a.py": "import sim.b",
                "sim/b.py": "def late():\n    from sim import c",
                "sim/c.py": "if TYPE_CHECKING:\n    from sim.a import A",
            }
        )
        assert circles(modules) == ["sim.a -> sim.b -> sim.c -> sim.a"]

    def test_torch_is_found_behind_a_parent_package(self, plant):
        modules = plant(
            {
                "policies/__init__.py": "from policies.networks.mlp import Mlp",
                "policies/networks/mlp.py": "import torch",
                "policies/bundle.py": "import numpy",
            }
        )
        loaded = loaded_packages(modules, "policies.bundle")
        assert loaded == {"numpy": "policies.bundle", "torch": "policies.networks.mlp"}
        modules = plant({"robot_rl/core/action.py": "import array_api_compat.torch as xp"})
        assert modules["robot_rl.core.action"].foreign == {"torch"}

    def test_folder_of_one_machine_is_found(self):
        assert ONE_MACHINE.search("see " + "/home" + "/somebody/notes")
        assert not ONE_MACHINE.search("the topic /robot/state, and https://host/home/page")
