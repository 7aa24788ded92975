"""Parts of Snakemake and its Slurm plugin that have no public name. A version without one of them is refused."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from turncredit.errors import UserError

#: The packages and the versions that this is tested with (requirements.lock).
TESTED = {"snakemake": "9.27.1", "snakemake-executor-plugin-slurm": "2.8.0"}


def require(owner: Any, *names: str) -> None:
    """Raise UserError unless `owner`, a class or an object, has these attributes."""
    for name in names:
        if not hasattr(owner, name):
            kind = owner if isinstance(owner, type) else type(owner)
            installed = ", ".join(f"{package} {version(package)}" for package in TESTED)
            wanted = " ".join(f"{package}=={tested}" for package, tested in TESTED.items())
            raise UserError(
                f"{kind.__module__}.{kind.__name__} has no {name} in the installed {installed}; install the tested "
                f"versions: pip install {wanted}"
            )


def replace(owner: Any, name: str, value: Any) -> Any:
    """Set an attribute of `owner` that it has; returns what it was before. Raises UserError where it has none.

    An assignment alone would do nothing, and say nothing, in a version that has renamed the attribute.
    """
    require(owner, name)
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before
