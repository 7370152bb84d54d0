"""What Hydra and OmegaConf refuse, in one sentence of ours."""

import re
from collections.abc import Mapping

from configs.catalog import choices


def misfit(error: BaseException, asked: Mapping[str, str]) -> str:
    """Sentence about a file that sets a field which another choice does not have; else empty.

    Args:
        error: What was raised while files were put together.
        asked: Group -> what the command line says about it.
    """
    found = re.search(r"In '(\w+)/(\w+)'.*Key '(\w+)' not in '(\w+)'", str(error), re.DOTALL)
    if found is None:
        return ""
    group, name, key, schema = found.groups()
    others = [text for one, text in asked.items() if one != group]
    return (
        f"{group}={name} sets '{key}', which is no field of {schema}: it does not go together with "
        f"{' '.join(others) or 'the defaults'}; leave {group}={name} out, or take another one: "
        f"{', '.join(one for one in choices(group) if one != name)}"
    )


def sentence(error: BaseException) -> str:
    """First lines of an error of Hydra or OmegaConf, without its list of internals."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    internals = ("full_key", "object_type", "reference_type", "value:", "See ")
    told = [line for line in lines if not line.startswith(internals)]
    return " ".join(told[:2]).rstrip(".") or type(error).__name__
