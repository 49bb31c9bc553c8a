"""The locked packages: one resolution, with hashes, that holds what pyproject.toml asks for."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCKS = sorted((ROOT / "constraints").glob("*.txt"))
PARTS = {
    "run": (["build"], []),
    "action": (["build"], ["remote"]),
    "test": (["build", "test"], ["dask", "mcp", "remote"]),
    "all": (["build", "test", "check", "docs"], ["dask", "mcp", "remote"]),
    "trackers": (["build"], ["mlflow", "wandb"]),
}
"""The groups and extras of each file."""


def pins(path):
    """Return the requirements of a lock, one for each line with a version."""
    text = path.read_text(encoding="utf-8")
    return [Requirement(line.rstrip(" \\")) for line in text.splitlines() if re.match(r"\w", line)]


def asked(groups, extras):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = list(project["project"]["dependencies"])
    found += [entry for extra in extras for entry in project["project"]["optional-dependencies"][extra]]
    found += [entry for group in groups for entry in project["dependency-groups"][group]]
    return [Requirement(entry) for entry in found]


@pytest.mark.parametrize("name", PARTS)
def test_a_lock_has_a_version_of_every_package_that_is_asked_for(name):
    pinned = {}
    for pin in pins(ROOT / "constraints" / f"{name}.txt"):
        pinned.setdefault(canonicalize_name(pin.name), []).append(next(iter(pin.specifier)).version)
    for wanted in asked(*PARTS[name]):
        versions = pinned.get(canonicalize_name(wanted.name), [])
        assert versions, f"{wanted} is not in constraints/{name}.txt: run make constraints"
        assert all(wanted.specifier.contains(version) for version in versions), wanted


@pytest.mark.parametrize("name", PARTS)
def test_all_locks_are_parts_of_one_resolution(name):
    def versions(path):
        return {(canonicalize_name(pin.name), str(pin.specifier)) for pin in pins(path)}

    part = versions(ROOT / "constraints" / f"{name}.txt")
    assert part
    if name == "trackers":  # by itself: their clients allow older packages than the tests want
        assert versions(ROOT / "constraints" / "run.txt") <= part
    else:
        assert part <= versions(ROOT / "constraints" / "all.txt")


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_locked_version_has_hashes_and_no_address(path):
    entries = re.split(r"\n(?=\w)", re.sub(r"(?m)^#.*\n", "", path.read_text(encoding="utf-8")).strip())
    assert len(entries) == len(pins(path))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert not any("://" in entry or "index-url" in entry for entry in entries)


def install(lock, **environment):
    return subprocess.run(
        ["bash", ROOT / "constraints" / "install.sh", lock],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_old_python_is_one_line_that_says_what_to_do(tmp_path):
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    ran = install("constraints/run.txt", PYTHON=str(old))
    assert ran.returncode == 2
    assert ran.stderr == (
        f"wallscope: {old} is absent or older than Python 3.11."
        " Install a newer one, or name it: PYTHON=/path/to/python3.12\n"
    )


def test_the_installing_script_passes_shellcheck():
    shellcheck = Path(sys.executable).parent / "shellcheck"
    if not shellcheck.exists():
        pytest.skip("no shellcheck here: make test installs it")
    ran = subprocess.run(
        [shellcheck, ROOT / "constraints" / "install.sh"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
