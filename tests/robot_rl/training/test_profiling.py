"""Launches counted in a trace as CUDA makes one: autograd's thread has no parts of its own."""

from collections import Counter

from robot_rl.training.profiling import count_launches


def event(name: str, category: str, start: float, seconds: float, thread: int = 1):
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": seconds, "tid": thread}


def test_launches_are_counted_per_call_in_the_innermost_part():
    events = [
        {"ph": "M", "name": "thread_name"},
        event("collect", "user_annotation", 0, 10),
        event("env step", "user_annotation", 1, 5),
        event("aten::linear", "cpu_op", 2, 3),
        event("aten::addmm", "cpu_op", 2.5, 2),  # called by it
        event("cudaLaunchKernel", "cuda_runtime", 3, 1),
        event("aten::mul", "cpu_op", 8, 1),
        event("update", "user_annotation", 20, 10),
        event("aten::add", "cpu_op", 21, 1),
        event("cudaGraphLaunch", "cuda_runtime", 22, 1),
        event("update", "user_annotation", 40, 10),
        event("aten::add", "cpu_op", 41, 1),
        event("aten::mm", "cpu_op", 43, 1, thread=2),
        event("cuLaunchKernelEx", "cuda_driver", 43.5, 0.1, thread=2),
        event("gemm", "kernel", 44, 9, thread=7),
        event("aten::add", "cpu_op", 60, 1),  # in no part
    ]
    assert count_launches(events) == {
        "collect": Counter({"ATen operators": 1.0}),
        "env step": Counter({"ATen operators": 1.0, "kernels": 1.0, "graphs": 0.0}),
        "update": Counter({"ATen operators": 1.5, "kernels": 0.5, "graphs": 0.5}),
    }
