"""The command that adds an absent extra fits the way in which wallscope was installed."""

import json
import shlex
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from wallscope.extras import name_install_command, read_installation, write_install_command

ROOT = Path(__file__).resolve().parent.parent
METADATA = """Metadata-Version: 2.4
Name: wallscope
Version: 1.0
Requires-Dist: numpy>=1.26
Requires-Dist: mcp>=2.3; extra == 'mcp'
Requires-Dist: fsspec>=2024.2 ; extra == "remote"
"""
CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {}}
EDITABLE = {"url": "file:///home/me/clone", "dir_info": {"editable": True}}
WHEEL = {"url": "file:///tmp/wallscope-1.0-py3-none-any.whl", "archive_info": {}}
GIT = {"url": "https://git.invalid/wallscope.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
RECEIPT = """[tool]
requirements = [
    { name = "wallscope", directory = "/home/me/clone" },
    { name = "s3fs", specifier = ">=2024" },
    { name = "mine", directory = "/home/me/mine" },
]
"""
BARE_RECEIPT = '[tool]\nrequirements = [{ name = "wallscope" }]\n'
ENVIRONMENTS = {
    "uv tool, from an index": (
        ("tools/wallscope", "uv", None, {"uv-receipt.toml": BARE_RECEIPT}),
        "uv tool install --with 'mcp>=2.3' wallscope",
    ),
    "uv tool, from a clone, with more": (
        ("tools/wallscope", "uv", CLONE, {"uv-receipt.toml": RECEIPT}),
        "uv tool install --with 's3fs>=2024' --with 'mcp>=2.3' '/home/me/my clone'",
    ),
    "uv tool, editable": (
        ("tools/wallscope", "uv", EDITABLE, {"uv-receipt.toml": BARE_RECEIPT}),
        "uv tool install --with 'mcp>=2.3' --editable /home/me/clone",
    ),
    "uv tool, a receipt that cannot be read": (
        ("tools/wallscope", "uv", None, {"uv-receipt.toml": "["}),
        "uv tool install --with 'mcp>=2.3' wallscope",
    ),
    "uvx, from an index": (
        ("cache/archive-v0/x1", "uv", None, {}),
        "uvx --with 'mcp>=2.3' wallscope ...",
    ),
    "uvx, from a wheel": (
        ("cache/archive-v0/x1", "uv", WHEEL, {}),
        "uvx --with 'mcp>=2.3' --from /tmp/wallscope-1.0-py3-none-any.whl wallscope ...",
    ),
    "uvx, from a repository": (
        ("cache/environments-v2/x1", "uv", GIT, {}),
        "uvx --with 'mcp>=2.3' --from git+https://git.invalid/wallscope.git wallscope ...",
    ),
    "pipx": (
        ("venvs/wallscope", "pip", None, {"pipx_metadata.json": "{}"}),
        "pipx inject wallscope 'mcp>=2.3'",
    ),
    "pipx, with a suffix and uv": (
        ("venvs/wallscope_1", "uv", None, {"pipx_metadata.json": "{}"}),
        "pipx inject wallscope_1 'mcp>=2.3'",
    ),
    "uv pip": (("my env", "uv", None, {}), "uv pip install --python 'PREFIX/bin/python' 'mcp>=2.3'"),
    "pip": (("venv", "pip", None, {}), "PREFIX/bin/python -m pip install 'mcp>=2.3'"),
    "pip, from a clone": (("venv", "pip", CLONE, {}), "PREFIX/bin/python -m pip install 'mcp>=2.3'"),
    "pip, editable": (("venv", "pip", EDITABLE, {}), "PREFIX/bin/python -m pip install 'mcp>=2.3'"),
    "uv pip, editable": (
        ("venv", "uv", EDITABLE, {}),
        "uv pip install --python PREFIX/bin/python 'mcp>=2.3'",
    ),
    "pip in a conda environment": (
        ("envs/train", "pip", None, {"conda-meta": None}),
        "PREFIX/bin/python -m pip install 'mcp>=2.3'",
    ),
    "no installer is named": (("venv", None, None, {}), "PREFIX/bin/python -m pip install 'mcp>=2.3'"),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_each_way_of_installation_has_its_command(case, tmp_path):
    (name, installer, origin, files), expected = ENVIRONMENTS[case]
    prefix = tmp_path / name
    info = prefix / "lib" / "wallscope-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA, encoding="utf-8")
    if installer is not None:
        (info / "INSTALLER").write_text(f"{installer}\n", encoding="utf-8")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    for file, text in files.items():
        (prefix / file).mkdir() if text is None else (prefix / file).write_text(text, encoding="utf-8")
    place = read_installation(prefix, f"{prefix}/bin/python", PathDistribution(info))
    made = write_install_command(place.requirements["mcp"], place)

    assert shlex.split(made) == shlex.split(expected.replace("PREFIX", str(prefix)))


def test_a_folder_without_metadata_is_told_the_package(tmp_path):
    place = read_installation(tmp_path, "/usr/bin/python3", None)

    assert place.requirements == {}
    assert write_install_command(("mcp",), place) == "/usr/bin/python3 -m pip install mcp"


@pytest.mark.parametrize(
    ("extra", "package"), [("mcp", "mcp"), ("dask", "distributed"), ("remote", "fsspec")]
)
def test_the_packages_are_those_of_the_project(extra, package):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (declared,) = project["optional-dependencies"][extra]
    command = shlex.split(name_install_command(extra, package))

    assert declared.startswith(package)
    assert command[-1] == declared
    assert sys.executable in command


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        (("analyze", "s3://bucket/run.sqlite"), "fsspec"),
        (("analyze", "run.sqlite", "--dask", "tcp://head:1"), "distributed"),
        (("record", "run.sqlite", "--store", "s3://bucket/store", "--commit", "c0ffee12"), "fsspec"),
    ],
    ids=["remote", "dask", "store"],
)
def test_an_absent_extra_is_one_line_with_the_command(arguments, module, wallscope, tmp_path, monkeypatch):
    (tmp_path / "run.sqlite").write_bytes(b"")
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    ran = wallscope(*arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f" — {name_install_command('dask' if module == 'distributed' else 'remote', module)}\n" in ran.err
