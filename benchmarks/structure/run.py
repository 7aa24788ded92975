"""Figures of the code's structure: names, rules, places that list stages, lines, private parts of Snakemake.

python -m benchmarks.structure.run [FOLDER]     a row for each figure of this checkout, or of another one
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from turncredit.config.stages import stages

#: What only Snakemake's own code should touch, as our rules and package could write it.
PRIVATE = (
    "_parsed_overwrite",
    "ScriptProcessor",
    "Resource.evaluate",
    "Job.restart_times",
    '"_executor"',
    "executor.__class__",
    "overwrite_function_params",
    '"_partitions"',
    "job_rate_limiter",
)


def lines(files: Iterable[Path]) -> int:
    """The lines of these files."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def lists_of_stages(package: Path, names: set[str]) -> Iterator[Path]:
    """The files outside the stages' own folders with a literal that has three or more stage names in it."""
    for file in sorted(package.rglob("*.py")):
        if "stages" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                items = node.keys
            elif isinstance(node, ast.Tuple | ast.List | ast.Set):
                items = node.elts
            else:
                continue
            if sum(isinstance(item, ast.Constant) and item.value in names for item in items) >= 3:
                yield file
                break


def touches(files: Iterable[Path]) -> int:
    """The lines that name a private part of Snakemake."""
    return sum(
        any(word in line for word in PRIVATE)
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
    )


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    package, rules = root / "turncredit", [*sorted((root / "rules").glob("*.smk"))]
    top = [path.name for path in package.iterdir() if path.name not in ("__init__.py", "__pycache__", "py.typed")]
    rows = {
        "names at the top of the package": len(top),
        "rule files": len(rules),
        "scripts": len([*(root / "workflow_scripts").glob("*.py")]),
        "lines of rules": lines(rules),
        "files outside stages/ that list three or more stage names": len([*lists_of_stages(package, {*stages()})]),
        "lines that touch Snakemake's private parts": touches([*rules, *package.rglob("*.py")]),
        "lines of the package without worlds": lines(package.rglob("*.py")) - lines((package / "envs").rglob("*.py")),
        "lines of tests": lines((root / "tests").rglob("*.py")),
    }
    for what, number in rows.items():
        print(f"| {what} | {number:,} |")


if __name__ == "__main__":
    main()
