"""What the build leaves in the package."""

from pathlib import Path

import pytest

import wallscope.kernels

FOLDER = Path(wallscope.kernels.__file__).parent


def test_compiled_modules_are_no_older_than_their_sources():
    if not wallscope.kernels.is_compiled():
        pytest.skip("the kernels are not compiled: no C compiler was found when wallscope was installed")
    for compiled in FOLDER.glob("*.so"):
        source = FOLDER / f"{compiled.name.partition('.')[0]}.py"
        if source.exists():
            assert compiled.stat().st_mtime >= source.stat().st_mtime, f"{source.name} was edited: run make"
        else:
            assert compiled.name.startswith("_cyutility"), f"{compiled.name} has no source: run make"
