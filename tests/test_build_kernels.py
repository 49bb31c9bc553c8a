"""What the build leaves in the package."""

import os
import subprocess
import sys
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


def test_build_says_whether_compiler_or_headers_are_missing(tmp_path):
    """A compiler that finds no Python.h is there: what must be installed is Python's headers."""
    compiler = tmp_path / "cc"
    compiler.write_text(
        "#!/bin/sh\necho '<stdin>:1:10: fatal error: Python.h: No such file or directory' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    script, into = FOLDER.parents[1] / "build_kernels.py", tmp_path / "kernels"
    told = []
    for name in (compiler, tmp_path / "none"):
        into.mkdir(exist_ok=True)
        (into / "old.so").touch()
        done = subprocess.run(
            [sys.executable, script, "--into", into],
            env={**os.environ, "CC": str(name)},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stderr)
        assert not [*into.iterdir()], "an old module would run instead of its source"
    headers, none = told
    assert headers == (
        "wallscope/kernels: no headers of Python (Python.h). Install python3-dev (Fedora: python3-devel)."
        " Its loops run as plain Python, slowly\n"
    )
    assert none.startswith(f"wallscope/kernels: no C compiler ({tmp_path / 'none'}). Install build-essential")
    assert none.count("\n") == 1
