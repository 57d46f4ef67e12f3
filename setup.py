"""The native core as an optional extension: without a C compiler the package installs and uses its slow Python twin."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/thruway/native")
NOT_BUILT = (
    "thruway: No C compiler was found that builds the native core, so calls will be slower: install gcc or clang with Python's headers "
    "(Debian: apt install gcc python3-dev), then install thruway again."
)


class BuildNative(build_ext):
    """Says in one sentence what to install where the core cannot be built; `optional` lets the installation go on."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            print(NOT_BUILT, file=sys.stderr)
            raise


setup(
    cmdclass={"build_ext": BuildNative},
    ext_modules=[
        Extension(
            "thruway.native._core",
            sorted(str(path) for path in NATIVE.glob("*.c")),
            depends=sorted(str(path) for path in NATIVE.glob("*.h")),
            extra_compile_args=["-O2", "-fvisibility=hidden", "-Wno-deprecated-declarations"],
            optional=True,
        )
    ],
)
