"""Small files that users name come in through one door: regular, within a limit, UTF-8, never quoted."""

import ast
import os

import pytest

from tests.code_index import ROOT
from tests.shipped_example import EXAMPLE
from wallscope.errors import OptionError
from wallscope.user_files import read_user_bytes, read_user_text

PACKAGE = ROOT / "wallscope"
_READ_BY_THEMSELVES = {
    "files.py": "shipped tables, queries and templates",
    "advice/launches.py": "a shipped list",
    "trace/gpu_peaks.py": "a shipped table",
    "trace/parallel_axes.py": "a shipped table",
    "trace/kernel_classes.py": "a shipped table",
    "demo/export_writer.py": "a shipped schema",
    "demo/example.py": "a shipped list",
    "extras.py": "metadata of the installation",
    "cli/installation.py": "metadata of a recipe that it wrote",
    "cli/output.py": "the manifest of a folder that it wrote",
    "cli/demo.py": "a page that it wrote",
    "capture/supervise.py": "numbers that it wrote, and the system's file about a process",
    "jobs/answers.py": "files of the package, and a named file whose kind and size it has checked",
    "nsys/load.py": "a list of processors of the system",
}


def test_a_text_comes_without_mark_and_with_plain_line_ends(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfx\r\ny\rz")

    assert read_user_text(tmp_path / "a", 100, "name another", OptionError) == "x\ny\nz"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda _: None, "cannot be read: No such file", id="missing"),
        pytest.param(lambda path: path.mkdir(), "is not a regular file", id="folder"),
        pytest.param(os.mkfifo, "is not a regular file", id="pipe without a writer"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "is not a regular file", id="device"),
        pytest.param(lambda path: (path.touch(), os.truncate(path, 1 << 40)), "larger than", id="sparse"),
        pytest.param(lambda path: path.write_bytes(b"\xffsecret"), "not UTF-8 text", id="binary"),
        pytest.param(lambda path: path.write_bytes(b"secret\0"), "is not text", id="nul"),
        pytest.param(lambda path: path.symlink_to("/proc/self/environ"), " — ", id="environment"),
    ],
)
def test_anything_else_is_one_line_without_its_content(make, said, tmp_path, monkeypatch):
    monkeypatch.setenv("WALLSCOPE_TEST", "secret")
    make(tmp_path / "named")

    with pytest.raises(OptionError, match=said) as found:
        read_user_text(tmp_path / "named", 1 << 16, "name another", OptionError)
    line = str(found.value)
    assert line.startswith(f"{tmp_path / 'named'} — ")
    assert line.endswith(" — name another")
    assert "\n" not in line
    assert "secret" not in line


_SECRET = "hunter2 or/a-token_of=somebody"


@pytest.mark.parametrize(
    "wrong",
    [
        ("check-config", "a.yaml", "model:\n  tensor_model_parallel_size: {}\n  num_layers: 8\n"),
        ("check-config", "a.yaml", "model:\n  num_layers: 8\n  sequence_parallel: {}\n"),
        ("check-config", "a.yaml", "model:\n  num_layers: 8\n  recompute_granularity: '{}'\n"),
        ("check-config", "a.yaml", "model:\n  num_layers: !!bool '{}'\n"),
        ("check-config", "a.yaml", "model: {{\n  num_layers: '{}\n"),
        ("check-config", "a.toml", "num_layers = '{}'\n"),
        ("check-config", "a.toml", "num_layers = {}\n"),
        ("check-config", "a.json", '{{"num_layers": "{}", "num_attention_heads": 8}}'),
        ("check-config", "a.json", '{{"num_layers": {}}}'),
        ("check-config", "a.sh", "--num-layers '{}' --num-attention-heads 8\n"),
        ("check-config", "a.sh", "--num-layers 8 --sequence-parallel '{}'\n"),
        ("check-config", "a.sh", "--num-layers 8 --attention-backend '{}'\n"),
        ("--kernels", "a.toml", "[[kernel]]\npattern = '({}'\ncategory = 'gemm'\n"),
        ("--kernels", "a.toml", "[[kernel]]\npattern = 'a'\ncategory = '{}'\n"),
        ("--kernels", "a.toml", "[[kernel]]\npattern = 'a'\noperation = 'all-reduce'\nbackend = '{}'\n"),
        ("--kernels", "a.toml", "[[kernel]]\npattern = {}\n"),
        ("--dask", "a.json", '{{"address": "{}"}}'),
        ("--dask", "a.json", '{{"address": {}}}'),
    ],
)
@pytest.mark.parametrize("secret", [_SECRET, _SECRET.split(maxsplit=1)[0]])
def test_a_wrong_value_is_not_repeated(wrong, secret, tmp_path, called):
    option, name, text = wrong
    (tmp_path / name).write_text(text.format(secret), encoding="utf-8")
    arguments = {
        "check-config": ("check-config", tmp_path / name),
        "--kernels": ("kernels", EXAMPLE, "--kernels", tmp_path / name),
        "--dask": ("analyze", EXAMPLE, EXAMPLE, "--no-cache", "--dask", tmp_path / name),
    }
    said = called(*arguments[option])
    words = said.out + said.err

    assert said.code in {0, 1, 2}
    assert words.strip()
    lines = [line for line in words.splitlines() if "line 3: recompute_granularity" not in line]
    said_of_values = "\n".join(lines)  # the report of a check shows the line that it is about
    if "recompute" not in text:  # what a setting may be is repeated if it is one word
        assert "hunter2" not in said_of_values
    assert "somebody" not in said_of_values


def test_a_file_may_have_the_limit_and_not_a_byte_more(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 10)

    assert read_user_bytes(tmp_path / "a", 10, "name another", OptionError) == b"x" * 10
    with pytest.raises(OptionError, match="larger than 9 B"):
        read_user_bytes(tmp_path / "a", 9, "name another", OptionError)


def test_no_other_module_reads_a_whole_file_that_a_user_names():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"read_text", "read_bytes"}
    }

    assert found == set(_READ_BY_THEMSELVES)


_OF_OURS = {
    "agents/worker.py": "a line that the server wrote",
    "agents/server.py": "answers of every line are checked: a deep one ends its call alone",
    "capture/hook/_wallscope_ranks.py": "options that `wallscope capture` wrote",
    "capture/hook/_wallscope_steps.py": "options that `wallscope capture` wrote",
    "capture/record.py": "the one reader, whose callers leave out what it raises",
    "extras.py": "metadata of the installation",
    "files.py": "shipped tables",
    "jobs/answers.py": "an answer in the cache, whose digest was checked",
    "nsys/shaped_ranges.py": "sizes that a pattern of two levels found",
    "trace/gpu_peaks.py": "a shipped table",
    "trace/parallel_axes.py": "a shipped table",
}


def _caught(tree):
    """The lines of calls whose `try` has a handler for what nests too deeply."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any("RecursionError" in _named(one, tree) for one in node.handlers):
            yield from (
                call.lineno for part in node.body for call in ast.walk(part) if hasattr(call, "lineno")
            )


def _named(handler, tree):
    """The exceptions of a handler, those too that a name of the module stands for."""
    names = {one.id for one in ast.walk(handler.type) if isinstance(one, ast.Name)} if handler.type else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(getattr(one, "id", "") in names for one in node.targets):
            names |= {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
    return names


def test_each_parser_of_a_file_expects_that_it_nests_too_deeply():
    bare = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        caught = set(_caught(tree))
        bare |= {
            path.relative_to(PACKAGE).as_posix()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and ast.unparse(node.func) in {"json.loads", "tomllib.loads", "yaml.compose"}
            and node.lineno not in caught
        }

    assert bare == set(_OF_OURS)


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("a.toml", f"kernel = {DEEP}", ("kernels", EXAMPLE, "--kernels")),
        ("a.toml", f"num_layers = {DEEP}", ("check-config",)),
        ("config.json", f'{{"model_type": {DEEP}', ("check-config",)),
        ("a.json", DEEP, ("analyze", EXAMPLE, EXAMPLE, "--no-cache", "--dask")),
    ],
)
def test_a_file_that_nests_too_deeply_is_one_line(name, text, arguments, tmp_path, called):
    (tmp_path / name).write_text(text, encoding="utf-8")
    said = called(*arguments, tmp_path / name)

    assert said.code == 2
    assert said.err.count("\n") == 1


def test_a_folder_whose_manifest_nests_too_deeply_is_not_ours(tmp_path, called):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "manifest.json").write_text(DEEP, encoding="utf-8")
    said = called("analyze", EXAMPLE, "--no-cache", "--csv", folder)

    assert said.code == 2
    assert said.err.count("\n") == 1
    assert (folder / "manifest.json").read_text(encoding="utf-8") == DEEP
