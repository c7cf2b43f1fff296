"""Installs the package with its hot modules compiled by mypyc (`tools/hot.py` names them, `tools/build.py` compiles).

The same sources run uncompiled, so a machine without a C compiler still gets a working, slower package;
`BRAIDLOG_PURE=1` asks for that on purpose.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent))

from tools.build import compiled_modules, copy_libraries, install_in_place, libraries, why_uncompiled
from tools.hot import SOURCE

UNCOMPILED = why_uncompiled()


class BraidlogDistribution(Distribution):
    """Its compiled modules are found when they are built; until then only their existence is known."""

    def has_ext_modules(self) -> bool:
        return UNCOMPILED is None


class BuildFromScratch(build):
    def run(self) -> None:
        # pip builds inside the source tree, where an earlier build may have left modules that are gone by now.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        if UNCOMPILED is not None:
            print(f"braidlog: installing the uncompiled, slower package: {UNCOMPILED}", file=sys.stderr)
        super().run()


class CompiledModules(build_ext):
    """Takes the compiled modules from `tools.build` instead of compiling extensions one by one."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.copied: list[str] = []

    def run(self) -> None:
        in_place = self.inplace or self.editable_mode
        with compiled_modules() as compiled:
            if in_place:
                # Notes which sources they are of, or `make build` would take them for those of its last build.
                install_in_place(compiled)
                copies = libraries(SOURCE)
            else:
                copies = copy_libraries(compiled, Path(self.build_lib))
        self.copied = [str(copy) for copy in copies]

    def get_outputs(self) -> list[str]:
        return self.copied

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return []


setup(
    distclass=BraidlogDistribution,
    cmdclass={"build": BuildFromScratch, "build_ext": CompiledModules},
)
