"""Hatchling build hook: compile the loops of wallscope/kernels with Cython where a C compiler is found.

`pip install` runs the hook. `python build_kernels.py [--check-bounds] [--into FOLDER]` compiles by hand.
Without a C compiler, or with WALLSCOPE_PLAIN set, the same files run as plain Python.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
FOLDER = Path("wallscope/kernels")
NOT_COMPILED = {"__init__", "plain"}
SHARED = "_cyutility"
"""The module with Cython's memoryview code, which all others share: without it each is 150 kB larger."""

C_FLAGS = [] if os.name == "nt" else ["-g0", "-O3"]


class KernelBuild(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's configuration is not ours
    """Compile before hatchling collects the files of a wheel or of an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's interface
        """Compile in place; if that worked, mark the wheel as built for this platform."""
        if self.target_name != "wheel" or os.environ.get("WALLSCOPE_PLAIN"):
            return
        if compile_kernels(Path(self.root) / FOLDER):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"] += [f"{FOLDER.as_posix()}/*.so", f"{FOLDER.as_posix()}/*.pyd"]


def compile_kernels(into: Path, *, check_bounds: bool = False) -> bool:
    """Compile every kernel into a folder, or none; return whether it worked."""
    into = into.resolve()
    if missing := find_missing_part():
        _leave_plain(missing, into)
        return False
    from Cython.Build import cythonize  # noqa: PLC0415  # needed by a build alone
    from setuptools import Extension  # noqa: PLC0415
    from setuptools.dist import Distribution  # noqa: PLC0415
    from setuptools.errors import BaseError, CCompilerError  # noqa: PLC0415

    os.chdir(ROOT)
    into.mkdir(parents=True, exist_ok=True)
    work = Path("build/kernels") / ("checked" if check_bounds else "fast")
    work.mkdir(parents=True, exist_ok=True)
    shared = work / f"{SHARED}.c"
    package = ".".join(FOLDER.parts)
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NOT_COMPILED)
    if not shared.exists():
        subprocess.check_call([sys.executable, "-m", "cython", f"--generate-shared={shared}"])  # noqa: S603
    extensions = cythonize(
        [
            Extension(f"{package}.{name}", [f"{FOLDER}/{name}.py"], extra_compile_args=C_FLAGS)
            for name in names
        ],
        compiler_directives={
            "language_level": 3,
            "boundscheck": check_bounds,
            "wraparound": False,
            "initializedcheck": check_bounds,
            "cdivision": True,
            "show_performance_hints": False,
        },
        build_dir=str(work),
        shared_utility_qualified_name=f"{package}.{SHARED}",
        quiet=True,
    )
    extensions.append(Extension(f"{package}.{SHARED}", [str(shared)], extra_compile_args=C_FLAGS))
    command = Distribution({"name": package, "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(work / "lib")
    command.build_temp = str(work)
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    try:
        command.run()
    except (BaseError, CCompilerError, OSError) as error:
        _leave_plain(f"the kernels did not compile ({error})", into)
        return False
    _replace_modules([Path(command.get_ext_fullpath(f"{package}.{name}")) for name in (*names, SHARED)], into)
    return True


def find_missing_part() -> str:
    """Say what a build lacks, the C compiler or Python's headers, and what installs it; empty if it has both.

    The compiler is asked, as variables of the environment can name other folders with headers.
    """
    if os.name == "nt":
        return ""  # setuptools finds the compiler there, and Python comes with its headers
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    flags = shlex.split(f"{os.environ.get('CPPFLAGS', '')} {os.environ.get('CFLAGS', '')}")
    folders = [f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")]
    command = [*compiler, *flags, *folders, "-E", "-x", "c", "-"]
    try:
        asked = subprocess.run(command, input=b"#include <Python.h>\n", capture_output=True, check=False)  # noqa: S603
    except OSError:
        return f"no C compiler ({compiler[0]}). Install build-essential (Fedora: gcc)"
    if asked.returncode and b"Python.h" in asked.stderr:
        return "no headers of Python (Python.h). Install python3-dev (Fedora: python3-devel)"
    return ""


def _leave_plain(reason: str, folder: Path) -> None:
    """Say why the kernels run as plain Python, and remove compiled ones from a folder."""
    sys.stderr.write(f"{FOLDER}: {reason}. Its loops run as plain Python, slowly\n")
    _replace_modules([], folder)


def _replace_modules(made: list[Path], folder: Path) -> None:
    """Make these the compiled modules of a folder: an old one would run instead of its edited source.

    Each is replaced by a rename, and only if it differs, as other processes may load it at the same time.
    """
    for old in (*folder.glob("*.so"), *folder.glob("*.pyd")):
        if old.name not in {module.name for module in made}:
            old.unlink()
    for module in made:
        target = folder / module.name
        if target.exists() and target.read_bytes() == module.read_bytes():
            os.utime(target)
            continue
        aside = target.with_suffix(".part")
        shutil.copy(module, aside)
        aside.replace(target)


def main() -> None:
    """Compile by hand."""
    parser = argparse.ArgumentParser(description="Compile the loops of wallscope/kernels.")
    parser.add_argument("--check-bounds", action="store_true", help="raise IndexError instead of crashing")
    parser.add_argument("--into", type=Path, default=ROOT / FOLDER, help="folder for the compiled modules")
    options = parser.parse_args()
    compile_kernels(options.into, check_bounds=options.check_bounds)


if __name__ == "__main__":
    main()
