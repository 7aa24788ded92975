"""`turncredit init DIR`: a folder for experiments with the workflow of the installed package in it.

The files are those of the repository's top level (`tool.turncredit.pipeline` in pyproject.toml). A wheel has a copy of
them next to this module; in a checkout they are copied from the repository.
"""

from __future__ import annotations

import json
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

from turncredit import __version__
from turncredit.data.files import write_bytes
from turncredit.errors import UserError

#: the copy in an installed package, and the top level of a checkout
PACKED = Path(__file__).resolve().with_name("files")
CHECKOUT = Path(__file__).resolve().parents[2]

README = f"""\
# Experiments with turncredit

Made by `turncredit init` of version {__version__}. The rules and scripts here use the installed package.

    snakemake -n                      # what would run
    turncredit run                    # the default experiment (config.yaml) on all cores, with progress
    turncredit run --configfile config/rails.yaml      # another one: files in config/ are laid over config.yaml

Results are below `results/`; the report is `results/household/report/index.html`. `snakemake --cores all` runs the same
jobs without the progress bar. `turncredit where credit flat_grpo --round 1` prints which files a stage reads and makes.
Every key of a configuration is in `schemas/config.schema.json`.
"""
GITIGNORE = "results/\n.snakemake/\n__pycache__/\n"
#: How the environments of `--sdm conda` install the package from a checkout.
FROM_CHECKOUT = " -e .\n"


def init(folder: str | Path) -> list[str]:
    """Write the workflow's files into `folder`; returns their names. Raises UserError if one of them exists."""
    folder = Path(folder)
    contents = {**workflow_files(), "README.md": README.encode(), ".gitignore": GITIGNORE.encode()}
    taken = next((path for name in contents if (path := _in_the_way(folder, name))), None)
    if taken:
        raise UserError(f"{taken}: exists already, and turncredit init overwrites no files; choose another folder")
    try:
        for name, content in contents.items():
            write_bytes(folder / name, content)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: cannot write here ({error.strerror})") from None
    return sorted(contents)


def workflow_files() -> dict[str, bytes]:
    """The workflow's files by name, sorted. The conda environments install the package from this one's source."""
    if PACKED.is_dir():
        root, paths = PACKED, [path for path in PACKED.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    elif not (CHECKOUT / "pyproject.toml").is_file():
        raise UserError(f"{PACKED}: the workflow's files are missing; install turncredit again")
    else:
        patterns = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["turncredit"][
            "workflow"
        ]
        found = {pattern: list(CHECKOUT.glob(pattern)) for pattern in patterns}
        lacking = [pattern for pattern in patterns if not found[pattern]]
        if lacking:
            raise UserError(f"{CHECKOUT}: the workflow's file {lacking[0]} is missing; install turncredit again")
        root, paths = CHECKOUT, [path for several in found.values() for path in several]
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(paths)}
    for name, content in files.items():
        if name.endswith(".post-deploy.sh"):
            files[name] = content.replace(FROM_CHECKOUT.encode(), f" {requirement()}\n".encode())
    return files


def requirement() -> str:
    """The arguments of `pip install`, quoted for a shell, that install this same package elsewhere."""
    if not PACKED.is_dir():
        return f"-e {shlex.quote(str(CHECKOUT))}"
    origin = json.loads(metadata.distribution("turncredit").read_text("direct_url.json") or "{}")
    if not origin:
        return f"turncredit=={__version__}"
    url = str(origin["url"])
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    return shlex.quote(f"turncredit @ {url}")


def _in_the_way(folder: Path, name: str) -> Path | None:
    """The path in the way of `folder/name`: a file of that name, or a file where a folder is needed; None if free."""
    path = folder / name
    if path.exists() or path.is_symlink():
        return path
    return next((above for above in path.parents if above.exists() and not above.is_dir()), None)
