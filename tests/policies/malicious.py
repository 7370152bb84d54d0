"""Bundles that somebody changed and sealed anew, loaded one after another in bounded memory.

    python -m tests.policies.malicious <bundle> <seed> <count>

prints a JSON object: how many loaded and were refused, what else happened, and what it took.
"""

import copy
import hashlib
import io
import json
import os
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from policies.bundle import SEALED_FILES, bundle_digest, load_bundle
from robot_rl.core.errors import RobotRLError
from robot_rl.core.process import peak_bytes

MEMORY = 1 << 30
"""More than this fails to be allocated beside what is mapped at the start [bytes]."""

_RAW = {
    "@huge@": "1e400",
    "@deep@": "[" * 50_000 + "]" * 50_000,
    "@deeper@": '{"a":' * 900 + "1" + "}" * 900,
    "@digits@": "9" * 5_000,
    "@many@": "[" + ",".join(["0"] * 200_000) + "]",
    "@surrogate@": '"\\ud800"',
}
"""Texts that Python's writer does not write."""
_VALUES: list[Any] = [
    None, True, False, "", "x", "inf", "-inf", "nan", "a\nb", "y" * 5_000, -1, 0, 1, 2, 7, -0.5,
    1e-300, 1e300, 2**31, 10**9, 10**8, 10**18, -(10**9), float("nan"), float("inf"), [],
    {}, [0], [[]], {"a": 1}, [None], ["x", "y"], [1.0, 2.0], "../../etc/passwd", *_RAW,
]  # fmt: skip


def seal_text(content: dict[str, Any], files: dict[str, bytes]) -> bytes:
    """`spec.json` of any content with a valid digest."""
    if isinstance(content.get("sha256"), dict):
        for name in SEALED_FILES:
            if name in content["sha256"]:
                content["sha256"][name] = hashlib.sha256(files[name]).hexdigest()
    blank = "0" * 64
    if isinstance(content.get("digest"), str) and len(content["digest"]) == 64:
        content["digest"] = blank
    text = _written(content)
    return text.replace(blank.encode(), hashlib.sha256(text).hexdigest().encode())


def _written(content: Any) -> bytes:
    text = json.dumps(content, indent=2)
    for name, raw in _RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Path of every value in a JSON object, itself excepted."""
    keys = (
        range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else []
    )
    found = [path] if path else []
    for key in keys:
        found += places(value[key], (*path, key))
    return found


def change_json(content: Any, rng: random.Random, where: list[tuple[Any, ...]]) -> None:
    """Put another value to one place, leave it out, double it, or add one beside it."""
    *path, last = rng.choice(where)
    for key in path:
        content = content[key]
    action = rng.random()
    if action < 0.75:
        content[last] = copy.deepcopy(rng.choice(_VALUES))
    elif action < 0.87:
        del content[last]
    elif isinstance(content, list):
        content.insert(0, copy.deepcopy(content[last]))
    else:
        content["further"] = copy.deepcopy(rng.choice(_VALUES))


def change_spec(files: dict[str, bytes], rng: random.Random) -> bytes:
    content = json.loads(files["spec.json"])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change_json(content, rng, places(content))
    return seal_text(content, files)


def change_provenance(files: dict[str, bytes], rng: random.Random) -> None:
    content = json.loads(files["provenance.json"])
    change_json(content, rng, places(content))
    whole = rng.random() < 0.3
    files["provenance.json"] = _written(rng.choice(_VALUES) if whole else content)


def _header(shape: tuple[int, ...], kind: str) -> bytes:
    text = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def change_golden(files: dict[str, bytes], rng: random.Random) -> None:
    with np.load(io.BytesIO(files["golden.npz"])) as archive:
        members = {f"{name}.npy": _npy(values) for name, values in archive.items()}
    name = rng.choice(sorted(members))
    values = np.load(io.BytesIO(members[name]))
    few = values.tobytes()[:64]
    wrong = {
        "objects": lambda: _npy(np.array([{"a": 1}], dtype=object)),
        "huge": lambda: _header((600_000_000,), "<f4") + few,
        "huge reset": lambda: _header((10**9, 10**9), "|b1") + few,
        "overflow": lambda: _header((2**62, 4), "<f4") + few,
        "negative": lambda: _header((-1, 4), "<f4") + few,
        "bomb": lambda: _header((25_000_000,), "<f4") + bytes(100_000_000),
        "deep header": lambda: _header((4,), "(" * 3000 + ")" * 3000) + few,
        "long": lambda: _npy(np.concatenate([values] * 500)),
        "wide": lambda: _npy(np.concatenate([values] * 300, axis=1)),
        "texts": lambda: _npy(values.astype("U8")),
        "complex": lambda: _npy(values.astype(complex)),
        "double": lambda: _npy(values.astype(float)),
        "nan": lambda: _npy(np.full_like(values, np.nan, dtype=np.float32)),
        "one": lambda: _npy(np.float32(1.0)),
        "empty": lambda: _npy(values[:0]),
        "no header": lambda: rng.randbytes(200),
        "fewer": lambda: _npy(values[..., :-1]),
        "axes": lambda: _npy(values[None]),
        "changed": lambda: _npy(~values if values.dtype == bool else values + 1),
    }  # fmt: skip
    action = rng.choice([*wrong, "left out", "further", "twice", "path"])
    if action in wrong:
        members[name] = wrong[action]()
    elif action == "left out":
        del members[name]
    elif action == "further":
        members["further.npy"] = _npy(values)
    elif action == "path":
        members["../../state.npy"] = members.pop(name)
    stream = io.BytesIO()
    with zipfile.ZipFile(
        stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as out:
        for member, raw in members.items():
            out.writestr(member, raw)
    files["golden.npz"] = stream.getvalue()


def _npy(values: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


def change_bytes(name: str) -> Callable[[dict[str, bytes], random.Random], None]:
    """Damage within a file that is sealed afterwards."""

    def change(files: dict[str, bytes], rng: random.Random) -> None:
        raw = bytearray(files[name])
        for _ in range(rng.choice((1, 1, 2, 8))):
            start = rng.randrange(len(raw))
            action = rng.random()
            if action < 0.6:
                raw[start] = rng.randrange(256)
            elif action < 0.75:
                del raw[start : start + rng.randrange(1, 60)]
            elif action < 0.9:
                raw[start:start] = rng.randbytes(rng.randrange(1, 20))
            else:
                del raw[start:]
            raw = raw or bytearray(b"\0")
        files[name] = bytes(raw)

    return change


def change_network(files: dict[str, bytes], rng: random.Random) -> None:
    """Graphs of onnx that no policy needs."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load_from_string(files["policy.onnx"])
    graph = model.graph
    action = rng.randrange(14)
    node = graph.node[rng.randrange(len(graph.node))]
    if action == 0:
        del model.opset_import[:]
    elif action == 1:
        tensor = graph.initializer[rng.randrange(len(graph.initializer))]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=rng.choice(("/dev/zero", "../spec.json")))
    elif action == 2:
        tensor = graph.initializer[rng.randrange(len(graph.initializer))]
        tensor.dims[:] = rng.choice(([10**9], [2**62, 2], [-1], [], [10**5, 10**5]))
    elif action in (3, 4, 5):  # a number that a graph makes of very many
        size = rng.choice((10**7, 10**9, 10**12, 2**62))
        graph.initializer.append(numpy_helper.from_array(np.array([size]), "many"))
        graph.initializer.append(numpy_helper.from_array(np.array([0.0], np.float32), "nought"))
        made = (
            helper.make_node("ConstantOfShape", ["many"], ["all"]),
            helper.make_node("Expand", ["nought", "many"], ["all"]),
            helper.make_node("Tile", ["nought", "many"], ["all"]),
        )[action - 3]
        last = next(one for one in graph.node if "action" in one.output)
        last.output[list(last.output).index("action")] = "before"
        summed = helper.make_node("ReduceSum", ["all"], ["sum"], keepdims=0)
        graph.node.extend([made, summed, helper.make_node("Add", ["before", "sum"], ["action"])])
    elif action == 6:
        node.op_type = rng.choice(("Loop", "Foreign", "Conv", ""))
    elif action == 7:
        node.domain = rng.choice(("com.microsoft", "x" * 1000))
    elif action == 8:
        graph.input[0].name = "foreign"
    elif action == 9:
        graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    elif action == 10:
        graph.input[0].type.tensor_type.shape.dim[rng.randrange(2)].dim_value = 10**9
    elif action == 11:
        del graph.node[rng.randrange(len(graph.node))]
    elif action == 12:
        graph.ClearField(rng.choice(("node", "initializer", "input", "output")))
    else:
        model.functions.add(name="f", domain="f")
    files["policy.onnx"] = model.SerializeToString()


def change_folder(folder: Path, rng: random.Random) -> None:
    """Links, pipes, folders and rights instead of files."""
    path = folder / rng.choice((*SEALED_FILES, "spec.json"))
    action = rng.randrange(6)
    if action == 0:
        path.chmod(0)
    elif action == 1:
        path.unlink()
        path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "nowhere", str(path), "/etc/passwd")))
    elif action == 2:
        path.unlink()
        os.mkfifo(path)
    elif action == 3:
        path.unlink()
        path.mkdir()
    elif action == 4:
        with path.open("ab") as file:
            file.truncate(3 << 30)  # takes no room on the disk
    else:
        shutil.rmtree(folder)
        folder.write_bytes(b"not a folder")


_CHANGES = [
    *[change_spec] * 9, change_provenance, *[change_golden] * 4, *[change_network] * 3,
    change_bytes("policy.onnx"), change_bytes("golden.npz"), change_bytes("provenance.json"),
    change_folder,
]  # fmt: skip


def write_changed(whole: dict[str, bytes], folder: Path, rng: random.Random) -> str:
    """Write a bundle that was changed in one way; returns which."""
    files, change = dict(whole), rng.choice(_CHANGES)
    spec = None
    if change is change_spec:
        spec = change_spec(files, rng)
    elif change is not change_folder:
        change(files, rng)
    files["spec.json"] = seal_text(json.loads(whole["spec.json"]), files) if spec is None else spec
    folder.mkdir()
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    if change is change_folder:
        change_folder(folder, rng)
    return change.__qualname__.partition(".")[0]


def main(bundle: Path, seed: int, count: int) -> dict[str, Any]:
    whole = {name: (bundle / name).read_bytes() for name in (*SEALED_FILES, "spec.json")}
    load_bundle(bundle, pictures=True)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    found: dict[str, Any] = {"loaded": 0, "refused": 0, "other": [], "slowest": 0.0}
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "bundle"
            what = write_changed(whole, folder, rng)
            start = time.process_time()
            try:
                load_bundle(folder, pictures=True)
                bundle_digest(folder)
                found["loaded"] += 1
            except RobotRLError as error:
                found["refused"] += 1
                if "\n" in str(error) or len(str(error)) > 1500:
                    found["other"].append(f"{number} {what}: no one sentence: {str(error)[:300]}")
            except BaseException as error:  # noqa: BLE001 - it is what is looked for
                found["other"].append(
                    f"{number} {what}: {type(error).__name__}: {str(error)[:300]}"
                )
            found["slowest"] = max(found["slowest"], time.process_time() - start)
    found["memory"] = peak_bytes()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
