"""The workflows of GitHub: valid by the published schema, and their scripts by shellcheck."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_follows_the_schema_of_github(path):
    ran = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


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
