"""Build: the workflow's files (pyproject.toml, `tool.turncredit.pipeline`) go into the package.

They are at the top level of the repository, where Snakemake looks for them. A wheel has them in
`turncredit/pipeline/files/`, from where `turncredit init` copies them; an sdist has them where they are. Everything
else is in pyproject.toml.
"""

import tomllib
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.build import build

ROOT = Path(__file__).parent
TARGET = "turncredit/pipeline/files"


class workflow_files(Command):
    """Copy the workflow's files into the package that is being built."""

    description = "copy the workflow's files into the package"
    user_options = []  # noqa: RUF012

    def initialize_options(self):
        """Set by setuptools: the folder that the wheel is made from, and whether the installation is editable."""
        self.build_lib = None
        self.editable_mode = False

    def finalize_options(self):
        """Take the folder from the command `build`."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self):
        """Copy. In an editable installation the files are used where they are."""
        if not self.editable_mode:
            for built, source in self.get_output_mapping().items():
                self.mkpath(str(Path(built).parent))
                self.copy_file(source, built)

    def get_source_files(self):
        """What an sdist needs for this."""
        patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["turncredit"][
            "workflow"
        ]
        return [path.relative_to(ROOT).as_posix() for pattern in patterns for path in sorted(ROOT.glob(pattern))]

    def get_output_mapping(self):
        """Built file -> source."""
        return {f"{self.build_lib}/{TARGET}/{source}": source for source in self.get_source_files()}

    def get_outputs(self):
        """The built files."""
        return list(self.get_output_mapping())


build.sub_commands.append(("workflow_files", None))
setup(cmdclass={"workflow_files": workflow_files})
