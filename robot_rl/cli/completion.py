"""Tab completion of `robot-rl`: commands, choices of groups, options, folders of runs."""

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from configs.catalog import GROUPS, choices
from robot_rl.core.errors import ConfigError

HELP = """Prints a script that lets a shell complete robot-rl by Tab: commands, choices, options.

usage: robot-rl completion bash|zsh

  bash: eval "$(robot-rl completion bash)"     put the line into ~/.bashrc
  zsh:  eval "$(robot-rl completion zsh)"      put the line into ~/.zshrc, behind compinit"""

_SCRIPTS = {
    "bash": r"""
_robot_rl() {
  local line="${COMP_LINE:0:COMP_POINT}" word
  local -a words
  read -ra words <<< "$line"
  [[ "$line" == *[[:space:]] ]] && words+=("")
  word="${words[-1]}"
  mapfile -t COMPREPLY < <(robot-rl completion words "${words[@]:1}" 2>/dev/null)
  # Bash completes what follows the last = of the word.
  local before="${word%"${word##*=}"}"
  [[ "$COMP_WORDBREAKS" == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"$before"}")
  [[ "${#COMPREPLY[@]}" == 1 && "${COMPREPLY[0]}" == *[=/] ]] && compopt -o nospace
}
complete -o default -F _robot_rl robot-rl
""",
    "zsh": r"""
_robot_rl() {
  local -a found
  found=("${(@f)$(robot-rl completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -S '' -a found
}
compdef _robot_rl robot-rl
""",
}
_RUNS = ("run", "resume", "bundle", "data", "base", "teacher")
"""Options that name a folder."""


def run(words: Sequence[str]) -> None:
    """Print the script of a shell; or, for that script, the words that may stand at the end."""
    if words[:1] == ["words"]:
        print("\n".join(complete(words[1:])))
        return
    if len(words) != 1 or words[0] not in _SCRIPTS:
        raise ConfigError(f"for which shell? robot-rl completion {'|'.join(_SCRIPTS)}")
    print(_SCRIPTS[words[0]].strip())


def complete(words: Sequence[str]) -> list[str]:
    """Words that the last of these, which may be empty, may be the beginning of.

    Args:
        words: Those behind `robot-rl`, up to the cursor.
    """
    from robot_rl.cli.main import COMMANDS

    begun = words[-1] if words else ""
    if len(words) < 2:
        found: Iterator[str] = iter([*COMMANDS, "--help", "--version"])
    elif words[0] not in COMMANDS:
        found = iter(())
    else:
        found = _values(*begun.split("=", 1)) if "=" in begun else _options(words[0])
    return sorted({word for word in found if word.startswith(begun)})


def _options(command: str) -> Iterator[str]:
    """Options that the command's help names, and its flags."""
    yield "--help"
    text = str(import_module(f"robot_rl.cli.{command}").HELP)
    if any(f"{{{name}}}" in text for name in ("choices", "tasks")):
        yield from (f"{group}=" for group in GROUPS)
    yield from re.findall(rf"^(?:usage:|      ) robot-rl {command} ([a-z]+)\b", text, re.MULTILINE)
    for line in text.splitlines():
        if re.match(r"  \S", line):
            yield from (f"{name}=" for name in re.findall(r"(?<!\S)([a-z_]\w*(?:[./]\w+)*)=", line))
            yield from re.findall(r"(?<!\S)(--?[a-z]+)", line)
            if word := re.match(r"  ([a-z]+) +<", line):
                yield word[1]


def _values(name: str, begun: str) -> Iterator[str]:
    """Values of an option: choices of a group, or folders."""
    if name in GROUPS:
        yield from (f"{name}={choice}" for choice in choices(name))
        return
    if name in ("run", "resume"):
        yield f"{name}=latest"
    if name.rpartition(".")[2] in (*_RUNS, "out", "bag", "record", "runs"):
        above = Path(begun) if begun.endswith("/") else Path(begun).parent
        if above.is_dir():
            yield from (f"{name}={path}/" for path in above.iterdir() if path.is_dir())
