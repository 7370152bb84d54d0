"""The command `robot-rl`: finds the command that is asked for and hands it the rest of the line."""

import sys
from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "train": "train a policy, or resume a run",
    "evaluate": "test a trained policy in simulation",
    "export": "write a policy as a bundle or as C99",
    "deploy": "run a bundle on a robot over ROS 2, or on a simulated one",
    "collect": "record episodes of scripted experts as a data set",
    "data": "show, convert, merge, split, relabel, plot and repair data sets",
    "runs": "list, show, compare and clean runs",
    "record": "record a deployed robot as a rosbag2 folder",
    "replay": "run a policy over a recording",
    "view": "watch a task or a policy in the browser, or film it",
    "doctor": "find what stands in the way of a deployment",
    "critics": "compare the critics of a run with the returns that were reached",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the command line names."""
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print("usage: robot-rl <command> [key=value ...]\n")
        print("\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items()))
        print("\nrobot-rl <command> --help describes one of them")
        return
    if name not in COMMANDS:
        print(f"error: command '{name}' is unknown; known: {', '.join(COMMANDS)}", file=sys.stderr)
        raise SystemExit(2)
    import_module(f"robot_rl.cli.{name}").main(rest)
