"""The workflows of GitHub: valid by the published schema, and their scripts by shellcheck."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.doc_blocks import find_blocks

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
BLOCKS = [
    block.body
    for block in find_blocks((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))
    if block.kind == "yaml"
]
DOCUMENTED = {text: yaml.safe_load(text) for text in BLOCKS if text.startswith("name: ")}
"""The whole workflows of the page about CI."""


def check(schema, path):
    """Fail unless a file follows a schema that check-jsonschema has."""
    ran = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_follows_the_schema_of_github(path):
    check("github-workflows", path)


def test_the_action_follows_the_schema_of_github():
    check("github-actions", ROOT / "action.yml")


@pytest.mark.parametrize("text", DOCUMENTED, ids=lambda text: "+".join(DOCUMENTED[text]["jobs"]))
def test_a_documented_workflow_works_with_the_action(text, tmp_path):
    (tmp_path / "workflow.yml").write_text(text)
    check("github-workflows", tmp_path / "workflow.yml")
    inputs = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["inputs"]
    steps = [step for job in DOCUMENTED[text]["jobs"].values() for step in job["steps"]]
    (given,) = [step["with"] for step in steps if step.get("uses", "").startswith("wallscope/")]
    assert set(given) <= set(inputs)
    assert {name for name, told in inputs.items() if told.get("required")} <= set(given)


def test_the_documented_jobs_install_nothing_on_the_machine_with_the_gpu():
    (jobs,) = [whole["jobs"] for whole in DOCUMENTED.values() if len(whole["jobs"]) > 1]
    used = {
        name: [step.get("uses", "").partition("@")[0] for step in job["steps"]] for name, job in jobs.items()
    }
    assert "wallscope/wallscope" not in used["capture"]
    assert jobs["analyze"]["needs"] == "capture"
    (sent,) = [step["with"] for step in jobs["capture"]["steps"] if "upload-artifact" in step.get("uses", "")]
    (got,) = [
        step["with"] for step in jobs["analyze"]["steps"] if "download-artifact" in step.get("uses", "")
    ]
    assert sent["name"] == got["name"]


def test_the_documented_pipeline_follows_the_schema_of_gitlab(tmp_path):
    (text,) = [text for text in BLOCKS if "$CI_COMMIT_SHA" in text]
    (tmp_path / "pipeline.yml").write_text(text)
    check("gitlab-ci", tmp_path / "pipeline.yml")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_of_a_workflow_pass_shellcheck(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    scripts = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert scripts
    for script in scripts:
        ran = subprocess.run(
            [Path(sys.executable).parent / "shellcheck", "--shell=bash", "-"],
            input=re.sub(r"\$\{\{.*?\}\}", "value", script),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout


def test_wheels_are_built_for_every_python_that_the_package_supports():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'requires-python = ">=3.11"' in text
    assert 'build = "cp311-* cp312-* cp313-*"' in text
