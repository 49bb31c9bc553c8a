"""Captures that others made, and what `wallscope analyze --json` answers of them."""

import json
from functools import cache
from pathlib import Path

import pytest

from tests.answered_once import write_json_once

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"
NEEDS_TRACES = pytest.mark.skipif(
    not TRACES.is_dir(), reason="no captures of others here: ../shared/traces is absent"
)


@cache
def answer(name):
    """The answer of an export, by its name without the suffix, or of a trace, by its whole name."""
    path = TRACES / (name if name.startswith("kineto/") else f"{name}.sqlite")
    return json.loads(write_json_once(path))


def rank_of(found):
    """The rank of an answer that its diagnosis is about."""
    return found["ranks"][found["diagnosis"]["rank_index"]]
