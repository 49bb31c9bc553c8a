"""Recommendations that head applied, by settings, by what was recognized, and by causes that fell."""

from dataclasses import replace

import pytest

from wallscope.compare.applied_fixes import ChangeEvidence, recognize_applied_fixes
from wallscope.compare.capture_bias import WORK_DIFFERS
from wallscope.files import list_toml_paths, read_toml
from wallscope.model.comparison import CauseDelta, Explanation, Mismatch, StepChange, WallDelta
from wallscope.model.enums import Wall
from wallscope.model.profile import RecordedFix

MS = 1_000_000
STEP = StepChange(
    100 * MS, 80 * MS, 100 * MS, 80 * MS, 100 * MS, 80 * MS, 100 * MS, 80 * MS, 0, 0, 0.78, 0.82, None, None,
    1.0, 0.8, 0.78, 0.82, None, None, 0.95, 0.99, 0.02, MS, 20, 20, 1, 1, "steps", 0.01, "assumed", None,
)  # fmt: skip
WALLS = tuple(
    WallDelta(wall, base_ns, head_ns, head_ns - base_ns, None, None)
    for wall, base_ns, head_ns in (
        (Wall.COMPUTE, 70 * MS, 70 * MS),
        (Wall.HOST, 25 * MS, 5 * MS),
        (Wall.MEMORY, 5 * MS, 5 * MS),
    )
)
NOTHING = ChangeEvidence(STEP, WALLS, (), (), ())


def fix(name, causes=("host/data-loading",), settings=(), bound_ms=22.0, whole_ms=100):
    bound_ns = None if bound_ms is None else round(bound_ms * MS)
    return RecordedFix(
        name,
        name,
        Wall.HOST,
        tuple(causes),
        tuple(settings),
        whole_ms * MS,
        bound_ns,
        bound_ns,
        "compute",
        "",
        False,
    )


def cause(name, base_ms, head_ms, noise_ms=1.0):
    delta_ns = round((head_ms - base_ms) * MS)
    noise_ns = round(noise_ms * MS)
    return CauseDelta(
        Wall(name.partition("/")[0]), name, round(base_ms * MS), round(head_ms * MS), delta_ns,
        delta_ns - noise_ns, delta_ns + noise_ns,
    )  # fmt: skip


def recognize(*fixes, **found):
    return recognize_applied_fixes(fixes, replace(NOTHING, **found))


def name_all(applied):
    return [(one.id, one.alternatives) for one in applied]


def setting(name, base, head):
    return Mismatch(name, base, head, "changed", is_setting=True)


def test_every_evidence_names_fixes_that_exist():
    tables = read_toml("compare/applied_fixes.toml")
    named = {
        *tables["by_cause"],
        *tables["by_condition"],
        *(one for table in tables["evidence"] for one in table["fixes"]),
    }

    known = {one["id"] for path in list_toml_paths("advice/rules") for one in read_toml(path).get("fix", ())}

    assert named <= known


def test_a_cause_that_fell_shows_its_fix_with_bound_and_gain():
    (found,) = recognize(fix("data-workers"), causes=(cause("host/data-loading", 22, 1),))

    assert (found.id, found.window, found.bound_ns, found.measured_ns) == (
        "data-workers",
        "typical",
        22 * MS,
        20 * MS,
    )
    assert found.share == pytest.approx(20 / 22)
    assert (found.low_ns, found.high_ns) == (18 * MS, 22 * MS)
    assert found.causes_ns == 21 * MS
    assert (found.next_wall, found.next_wall_ns) == (Wall.COMPUTE, 70 * MS)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"causes": (cause("host/data-loading", 22, 15),)},
        {"causes": (cause("host/data-loading", 22, 1, noise_ms=30),)},
        {"causes": (cause("host/data-loading", 0.5, 0),)},
        {"causes": (cause("host/data-loading", 1, 22),)},
        {"causes": (cause("host/framework", 22, 1),)},
        {
            "causes": (cause("host/data-loading", 22, 1),),
            "mismatches": (Mismatch(WORK_DIFFERS, "1.00x", "0.50x", "note"),),
        },
        {
            "causes": (cause("host/data-loading", 22, 1),),
            "explanations": (Explanation("gpu-preprocessing-gone", "", -MS, ("host/data-loading",)),),
        },
        {"explanations": (Explanation("precision-changed", "", -20 * MS, ("compute/gemm",)),)},
        {
            "causes": (cause("host/data-loading", 1, 22),),
            "explanations": (Explanation("rare-stalls-fewer", "", -5 * MS, ("host/data-loading",)),),
        },
        {"mismatches": (setting("num_workers", "2", "8"),)},
    ],
)
def test_no_other_change_shows_a_fix(found):
    assert recognize(fix("data-workers"), fix("bf16", ["compute/attention"]), **found) == ()


@pytest.mark.parametrize(
    ("seen", "advised", "named"),
    [
        (("bf16",), ("fp8-blockwise", "bf16"), ("bf16", ())),
        (("fp8", "bf16"), ("bf16", "fp8-blockwise"), ("bf16", ())),
        (("fp8",), ("bf16", "fp8-blockwise"), ("fp8-blockwise", ())),
        (("fp16",), ("bf16",), ("bf16", ("fp16",))),
        (("nvfp4",), ("bf16", "fp8-blockwise"), ("bf16", ("nvfp4",))),
        ((), ("bf16", "fp8-blockwise"), ("bf16", ())),
    ],
)
def test_the_precision_that_kernels_show_names_the_fix(seen, advised, named):
    (found,) = recognize(
        *(fix(one, ["compute/gemm"]) for one in advised),
        explanations=(Explanation("precision-changed", "", -20 * MS, ("compute/gemm",), seen),),
        causes=(cause("compute/gemm", 60, 40),),
    )

    assert (found.id, found.precisions) == named


PINNED = fix("pin-batches", ["memory/staging"])


@pytest.mark.parametrize(
    ("base_ms", "head_ms", "advised", "expected"),
    [
        (30, 20, {"prefetch-batches"}, ["pin-batches"]),
        (30, 20, {"prefetch-batches", "pin-batches"}, []),
        (30, 20, (), []),  # an older record holds no recommendations
        (30, 30, {"prefetch-batches"}, []),
        (30, 35, {"prefetch-batches"}, []),
        (8, 5, {"prefetch-batches"}, []),  # so short that it may be advised no more for that
    ],
)
def test_a_condition_that_holds_no_more_shows_its_fix(base_ms, head_ms, advised, expected):
    found = recognize(
        PINNED,
        fix("prefetch-batches", ["memory/staging"]),
        causes=(cause("memory/staging", base_ms, head_ms, noise_ms=20),),
        still_advised=frozenset(advised),
    )

    assert [one.id for one in found] == expected


def test_like_sides_show_nothing():
    same = replace(STEP, replication="same")

    assert recognize(fix("data-workers"), causes=(cause("host/data-loading", 22, 1),), step=same) == ()


def test_what_fits_several_names_the_first_and_the_others():
    fixes = (
        fix("fewer-device-copies", ["memory/device-copy"]),
        fix("gradient-bucket-views", ["memory/device-copy"]),
    )
    copies = Explanation("device-to-device-fewer", "28 to 4", -MS, ("memory/device-copy",))
    found = recognize(*fixes, explanations=(copies,), causes=(cause("memory/device-copy", 8, 1),))

    assert name_all(found) == [("fewer-device-copies", ("gradient-bucket-views",))]


def test_what_one_fix_explains_shows_no_other():
    fixes = (
        fix("prefetch-batches", ["memory/staging"]),
        fix("gpu-data-pipeline", ["memory/staging", "host/data-loading"]),
        fix("data-workers"),
    )
    dali = Explanation("gpu-preprocessing-new", "DALI", -MS, ("memory/staging", "host/data-loading"))
    fell = (cause("memory/staging", 8, 0), cause("host/data-loading", 9, 0))

    assert name_all(recognize(*fixes, explanations=(dali,), causes=fell)) == [("gpu-data-pipeline", ())]


def test_a_setting_shows_its_fix_also_without_a_gain():
    overlap = fix("ep-overlap", ["communication/ep/unsplit"], [("comm_overlap.overlap_moe", "true")])
    slower = replace(STEP, head_typical_ns=101 * MS, ratio_low=0.98, ratio_high=1.03)
    (found,) = recognize(overlap, mismatches=(setting("overlap_moe", "False", "True"),), step=slower)

    assert (found.evidence, found.measured_ns) == (("overlap_moe False → True",), -MS)
    assert found.share == pytest.approx(-1 / 22)


def test_a_setting_of_another_value_shows_nothing():
    flex = [("--moe-token-dispatcher-type", "flex"), ("--moe-flex-dispatcher-backend", "hybridep")]
    fixes = (fix("hybridep", ["communication/ep/unsplit"], flex),)
    changed = (setting("moe_token_dispatcher_type", "alltoall", "flex"),)

    assert name_all(recognize(*fixes, mismatches=changed)) == [("hybridep", ())]
    deepep = setting("moe_flex_dispatcher_backend", "not set", "deepep")
    assert recognize(*fixes, mismatches=(*changed, deepep)) == ()


def test_fixes_that_share_a_gain_have_no_share_of_their_bounds():
    fixes = (fix("data-workers"), fix("fewer-fills", ["memory/fill"]))
    fell = (cause("host/data-loading", 22, 1), cause("memory/fill", 5, 0))
    found = recognize(*fixes, causes=fell)

    assert [(one.id, one.is_joint, one.share) for one in found] == [
        ("data-workers", True, None),
        ("fewer-fills", True, None),
    ]
    assert [one.causes_ns for one in found] == [21 * MS, 5 * MS]


def test_a_bound_about_the_mean_is_compared_with_the_mean():
    step = replace(STEP, base_mean_ns=120 * MS, head_mean_ns=85 * MS)
    (found,) = recognize(
        fix("data-workers", whole_ms=120), causes=(cause("host/data-loading", 22, 1),), step=step
    )

    assert (found.window, found.base_ns, found.head_ns, found.measured_ns) == (
        "mean",
        120 * MS,
        85 * MS,
        35 * MS,
    )
