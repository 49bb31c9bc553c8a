"""Answers that many tests ask for, each made once in a run: the workers of a run share a folder of them."""

import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fixtures.scenario import scenarios
from tests.conftest import ANSWERS
from wallscope.api import diff
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Options
from wallscope.model.comparison import Comparison
from wallscope.model.report import Report
from wallscope.pipeline import analyze
from wallscope.render.data import write_json
from wallscope.views.page_analysis import write_analysis_page


def _make_once(name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, or returned in another worker; two that ask at once may both make it."""
    kept = Path(os.environ[ANSWERS]) / f"{name}.pickle"
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    made = make()
    aside = kept.with_suffix(f".{os.getpid()}")
    aside.write_bytes(pickle.dumps(made))
    aside.replace(kept)
    return made


@cache
def analyze_once(path: Path) -> Analysis:
    """The answer about a capture that no test changes, without any option."""
    name = "-".join(path.resolve().parts[1:])
    return _make_once(name, lambda: analyze(path, Options(), lambda _: None))


@cache
def compare_once(base: Path, head: Path) -> Comparison:
    """The comparison of two captures that no test changes, without any option."""
    name = "-".join((*base.resolve().parts[1:], "and", *head.resolve().parts[1:]))
    return _make_once(name, lambda: diff(base, head).comparison)


@cache
def write_json_once(path: Path) -> str:
    """The answer as JSON."""
    return write_json(analyze_once(path))


@cache
def write_page_once(path: Path) -> str:
    """The answer as a page, without timeline and gaps."""
    return _make_once(f"page-{path.name}", lambda: write_analysis_page(Report(analyze_once(path), (), ())))


@cache
def analyze_scenario_once(name: str) -> Analysis:
    """The answer about a scenario, without any option."""
    path = Path(os.environ[ANSWERS]) / name / str(os.getpid()) / "run.sqlite"

    def make() -> Analysis:
        path.parent.mkdir(parents=True)
        next(scenario for scenario in scenarios() if scenario.name == name).write(path)
        try:
            return analyze(path, Options(), lambda _: None)
        finally:
            path.unlink()

    return _make_once(f"scenario-{name}", make)
