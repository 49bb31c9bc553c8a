"""In which order fixes come, and what each carries."""

import tomllib
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tests.advice.runs import MS, RANGES, run
from wallscope.advice.measurements import MeasuredRun
from wallscope.advice.next_actions import name_next_actions
from wallscope.advice.recommend import find_matches, rank_fixes
from wallscope.advice.rules import check_rules, fix_rules
from wallscope.model.advice import KnownSetting, Precondition, RunConfiguration

STORIES = tomllib.loads((Path(__file__).parent / "stories.toml").read_text(encoding="utf-8"))["story"]
TABLE = """
[[fix]]
id = "{id}"
title = "Do it"
wall = "{wall}"
causes = {causes}
phase = "{phase}"
because = "It helps."
active = "It runs."
source = "A book"
preconditions = {needs}
"""


def rules(*wanted):
    """Rules by id: their causes, and what else differs from the usual."""
    made = [
        {
            "id": name,
            "wall": causes[0].split("/")[0],
            "causes": list(causes),
            "phase": "retune",
            "needs": [],
            **rest,
        }
        for name, causes, rest in wanted
    ]
    text = "\n".join(TABLE.format(**entry) + entry.get("more", "") for entry in made)
    return check_rules(tomllib.loads(text.replace("'", '"')), "test")


def told(status="unknown", **statuses):
    def checked(ids, _):
        return tuple(
            Precondition(name, f"needs {name}", statuses.get(name, status), f"change {name}") for name in ids
        )

    return checked


UNKNOWN = told()


def recommended(view, wanted, checked):
    return rank_fixes(view, find_matches(view, wanted, checked))


def order(causes, *wanted, checked=UNKNOWN, **facts):
    view = MeasuredRun(run(causes, **facts), RunConfiguration(), pl.Series(["x"]))
    return [fix.id for fix in recommended(view, rules(*wanted), checked)]


def test_the_cause_that_could_win_most_comes_first():
    causes = {"host/lock": (30, 5), "memory/fill": (10, 10), "communication/tp/unsplit": (4, 4)}
    wanted = [("a", ["host/lock"], {}), ("b", ["memory/fill"], {}), ("c", ["communication/tp/unsplit"], {})]

    assert order(causes, *wanted) == ["b", "a", "c"]


def test_of_equals_the_open_one_comes_before_the_blocked_one_which_says_what_unblocks_it():
    wanted = rules(("a", ["host/lock"], {"needs": ["A"]}), ("b", ["host/lock"], {"needs": ["B"]}))
    view = MeasuredRun(run({"host/lock": 20}), RunConfiguration(), pl.Series(["x"]))

    first, second = recommended(view, wanted, told("met", A="unmet"))

    assert (first.id, first.blocked) == ("b", False)
    assert (second.id, second.blocked) == ("a", True)
    assert second.preconditions == (Precondition("A", "needs A", "unmet", "change A"),)


def test_a_blocked_fix_that_could_win_more_stays_first():
    wanted = [("a", ["host/lock"], {"needs": ["A"]}), ("b", ["host/file"], {})]

    assert order({"host/lock": 20, "host/file": 10}, *wanted, checked=told("unmet")) == ["a", "b"]


def test_ties_go_in_the_order_of_the_workflow():
    phases = ("validate", "retune", "profile", "scale", "fit", "freeze")
    wanted = [(phase, ["host/lock"], {"phase": phase}) for phase in phases]

    assert order({"host/lock": 20}, *wanted) == list(reversed(phases))


def test_the_place_that_a_rule_gives_itself_comes_before_the_workflow():
    wanted = [
        ("a", ["host/lock"], {"phase": "fit"}),
        ("b", ["host/lock"], {"phase": "retune", "more": "order = 1"}),
    ]

    assert order({"host/lock": 20}, *wanted) == ["b", "a"]


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        pytest.param({"compute/gemm": 95, "host/lock": 5}, ["b", "a"], id="compute is the wall"),
        pytest.param({"compute/gemm": 60, "host/lock": 40}, ["a", "b"], id="the host is the wall"),
    ],
)
def test_compute_comes_first_where_it_is_the_wall_else_last(causes, expected):
    assert order(causes, ("a", ["host/lock"], {}), ("b", ["compute/gemm"], {})) == expected


@pytest.mark.parametrize(
    ("walls", "place"),
    [
        pytest.param("mmmmc", 2, id="the dominant wall comes last"),
        pytest.param("cmmmc", 0, id="it has another before"),
        pytest.param("mc", 1, id="there are few"),
        pytest.param("mmmm", None, id="no fix addresses it"),
    ],
)
def test_one_of_the_first_recommendations_addresses_the_dominant_wall(walls, place):
    view = MeasuredRun(run({"communication/tp/unsplit": 60}), RunConfiguration(), pl.Series(["x"]))
    causes = {"m": "memory/fill", "c": "communication/tp/unsplit"}
    (of_tp,) = recommended(view, rules(("c", [causes["c"]], {})), UNKNOWN)
    made = [replace(of_tp, id=f"{place}", causes=(causes[wall],)) for place, wall in enumerate(walls)]

    chosen, _ = name_next_actions(view, made, ())

    assert {fix.id for fix in chosen} == {fix.id for fix in made}
    assert next((nth for nth, fix in enumerate(chosen) if fix.causes == (causes["c"],)), None) == place
    rest = [fix.id for fix in chosen if fix.id != chosen[place or 0].id]
    assert rest == sorted(rest)


def test_what_could_not_win_a_hundredth_of_the_step_gets_no_fix():
    causes = {"host/lock": (30, 0.5), "host/file": (0.2, 2), "memory/fill": 0.9, "compute/gemm": 68}
    wanted = [("a", ["host/lock"], {}), ("b", ["host/file"], {}), ("c", ["memory/fill"], {})]

    assert order(causes, *wanted) == ["b"]


def test_what_refills_a_drained_queue_is_worth_no_more_than_not_draining_it():
    causes = {"host/queue-drained/cudaStreamSynchronize": (12, 8), "host/framework": (2, 11)}
    (wanted,) = rules(("a", ["host/queue-drained/*", "host/framework"], {}))

    (fix,) = recommended(MeasuredRun(run(causes), RunConfiguration(), pl.Series(["x"])), [wanted], told())

    assert fix.recoverable_ns == 8 * MS
    assert fix.causes == ("host/framework", "host/queue-drained/cudaStreamSynchronize")


@pytest.mark.parametrize(
    ("causes", "following"),
    [
        pytest.param({"host/lock": 20, "memory/fill": 15}, "memory", id="another loss"),
        pytest.param({"host/lock": 20, "memory/fill": 5}, "compute", id="nothing but compute"),
        pytest.param({"host/lock": (40, 10), "memory/fill": 5}, "host", id="the same, as little is won"),
    ],
)
def test_each_fix_tells_the_wall_that_comes_next(causes, following):
    (wanted,) = rules(("a", ["host/lock"], {}))

    (fix,) = recommended(MeasuredRun(run(causes), RunConfiguration(), pl.Series(["x"])), [wanted], told())

    assert fix.next_wall == following


def test_of_one_ceiling_what_the_causes_own_does_not_count():
    causes = {"host/queue-drained/cudaStreamSynchronize": (1, 15), "host/framework": (10, 15)}
    wanted = [
        ("a", ["host/queue-drained/*", "host/framework"], {"more": "order = 40"}),
        ("b", ["host/queue-drained/*"], {"more": "order = 20"}),
    ]

    assert order(causes, *wanted) == ["b", "a"]


def test_a_fix_without_a_ceiling_tells_none():
    (wanted,) = rules(("a", ["compute/gemm"], {}))

    (fix,) = recommended(
        MeasuredRun(run({"compute/gemm": 95}), RunConfiguration(), pl.Series(["x"])), [wanted], told()
    )

    assert (fix.recoverable_ns, fix.speedup_ceiling, fix.next_wall) == (None, None, None)
    assert fix.why == "Gemm kernels: 95.0 ms (95.0 %). It helps."
    assert fix.verify.startswith("It runs. A/B test: change nothing else between the two runs. ")


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"])
def test_nothing_of_experts_is_said_to_a_model_without_them(story):
    facts = dict(story.get("run", {}))
    names = pl.Series([RANGES[facts.pop("framework", "megatron")], *facts.pop("names", ())])
    settings = {key: KnownSetting(value, "test") for key, value in story.get("configuration", {}).items()}
    view = MeasuredRun(run(story["causes"], **facts), RunConfiguration(settings), names)

    for fix in recommended(view, fix_rules(), told()):
        of_experts = [entry.key for entry in fix.settings if "moe" in entry.key or "expert" in entry.key]
        assert view.measure("experts", ()) or not of_experts
        assert fix.source
        assert fix.verify
