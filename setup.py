"""The native core as an optional extension: without a C compiler the package installs and uses its slow Python twin."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/thruway/native")

setup(
    ext_modules=[
        Extension(
            "thruway.native._core",
            sorted(str(path) for path in NATIVE.glob("*.c")),
            depends=sorted(str(path) for path in NATIVE.glob("*.h")),
            extra_compile_args=["-O2", "-fvisibility=hidden", "-Wno-deprecated-declarations"],
            optional=True,
        )
    ]
)
