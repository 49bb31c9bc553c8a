"""Each promise of the pages about security and robustness names a test or a target that exists."""

import re

import pytest

from tests.conftest import ROOT

PAGES = ("SECURITY.md", "docs/threat-model.md", "docs/robustness.md", "docs/ci.md")
TEST = re.compile(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`")
TARGET = re.compile(r"`make ([a-z-]+)`")
PROMISED = ("promise", "attack", "fault")
"""How tables of promises begin; the last column has the proof."""


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def promises(page):
    """The rows of tables of promises: what is promised, and the proof."""
    found, is_promised = [], False
    for line in read(page).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            is_promised = False
        elif not is_promised:
            is_promised = cells[0] in PROMISED
        elif not set(cells[0]) <= set("-: "):
            found.append((cells[0], cells[-1]))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_test_and_target_that_a_page_names_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    for path, name in TEST.findall(read(page)):
        place = ROOT / path
        files = [place] if place.suffix else sorted(place.rglob("test_*.py"))
        assert files, path
        tests = [
            re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE) for file in files
        ]
        assert all(tests), path
        assert not name or name in tests[0], f"{path}::{name}"
    assert set(TARGET.findall(read(page))) <= targets


@pytest.mark.parametrize("page", PAGES[:3])
def test_every_promise_has_a_proof(page):
    found = promises(page)
    assert len(found) >= 10
    for promise, proof in found:
        assert TEST.search(proof) or TARGET.search(proof), promise


def test_make_attack_runs_the_tests_of_every_promise():
    """All promises of the threat model have tests, which the target takes from that page."""
    for promise, proof in promises("docs/threat-model.md"):
        assert TEST.search(proof), promise
    named = {path for path, _ in TEST.findall(read("docs/threat-model.md"))}
    assert all(path.endswith(".py") for path in named)
    assert "docs/threat-model.md" in re.search(r"^ATTACKED = (.*)$", read("Makefile"), re.MULTILINE)[1]


def test_the_attacks_of_the_security_page_are_tested_by_make_attack():
    """What SECURITY.md names beside whole folders is in the threat model too."""
    attacked = {path for path, _ in TEST.findall(read("docs/threat-model.md"))}
    named = {path for path, _ in TEST.findall(read("SECURITY.md")) if path.endswith(".py")}
    assert named <= attacked
