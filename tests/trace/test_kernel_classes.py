import csv
import os
import time
from pathlib import Path

import polars as pl
import pytest

from wallscope.errors import KernelRulesError
from wallscope.model.schemas import CLASSIFIED, COPIES, NAMES, OPERATIONS
from wallscope.trace.kernel_classes import (
    classify_kernels,
    classify_operations,
    load_kernel_rules,
    load_shipped_kernel_rules,
)

KNOWN = Path(__file__).with_name("kernel_names.csv")


def names(*texts: str) -> pl.DataFrame:
    return pl.DataFrame(list(enumerate(texts)), schema=NAMES, orient="row")


def kinds(*texts: str, rules=None) -> list[tuple[str, str, str | None, bool]]:
    found = classify_kernels(names(*texts), load_shipped_kernel_rules() if rules is None else rules)
    return found.select("class", "category", "backend", "matched").rows()


def test_known_kernels_are_what_their_labels_say():
    with KNOWN.open(encoding="utf-8", newline="") as stream:
        labelled = list(csv.DictReader(stream))
    found = kinds(*(row["name"] for row in labelled))

    wrong = {
        row["name"]: (got[:3], row["class"], row["category"], row["backend"])
        for row, got in zip(labelled, found, strict=True)
        if got[:3] != (row["class"], row["category"], row["backend"] or None)
    }
    assert wrong == {}
    assert len({row["name"] for row in labelled}) >= 300


def test_a_name_that_no_pattern_knows_is_unrecognized_compute():
    assert kinds("frobnicate_v2(int *)") == [("compute", "unrecognized", None, False)]


@pytest.mark.parametrize(
    ("name", "category"),
    [
        pytest.param(
            "void transformer_engine::dispatch::mxfp8::quantize_mxfp8_kernel<1>(x)",
            "quantize",
            id="a namespace",
        ),
        pytest.param("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send-recv", id="nccl"),
        pytest.param("void cutlass::device_kernel<flash::FlashAttnFwdSm90<x>>(y)", "attention", id="FA3"),
        pytest.param("void hybrid_ep::permute_kernel<x>(y)", "dispatcher-local", id="hybrid-ep permute"),
        pytest.param("triton_poi_fused_all_reduce_add_0", "elementwise", id="inductor names its inputs"),
        pytest.param("void multi_tensor_apply_kernel<AdamFunctorMaster<float>>(x)", "optimizer", id="adam"),
    ],
)
def test_traps_of_order(name, category):
    ((_, found, _, _),) = kinds(name)

    assert found == category


def test_a_users_rule_is_asked_before_the_shipped_ones(tmp_path):
    rules = tmp_path / "mine.toml"
    rules.write_text(
        '[[kernel]]\npattern = "nvjet.*special"\noperation = "all-gather"\nbackend = "nvshmem"\n'
    )

    found = kinds("nvjet_special_1", "nvjet_2", rules=load_kernel_rules(rules))

    assert found == [("communication", "all-gather", "nvshmem", True), ("compute", "gemm", None, True)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[[kernel]\n", "is not valid TOML", id="broken TOML"),
        pytest.param("a = 1\n", "holds no rules", id="no rules"),
        pytest.param("[[kernel]]\ncategory = 'gemm'\n", "no pattern", id="no pattern"),
        pytest.param(
            "[[kernel]]\npattern = '('\ncategory = 'gemm'\n", "no valid pattern", id="broken pattern"
        ),
        pytest.param(
            "[[kernel]]\npattern = 'a(?=b)'\ncategory = 'gemm'\n", "no valid pattern", id="lookahead"
        ),
        pytest.param("[[kernel]]\npattern = 'a'\n", "has not one of category", id="no class"),
        pytest.param(
            "[[kernel]]\npattern = 'a'\ncategory = 'gem'\n", "category is none of gemm", id="no such category"
        ),
        pytest.param(
            "[[kernel]]\npattern = 'a'\noperation = 'dispatch'\n", "is none of nccl", id="no backend"
        ),
        pytest.param(
            "[[kernel]]\npattern = 1\ncategory = 'gemm'\n", "not a table of strings", id="wrong type"
        ),
        pytest.param("[[kernel]]\npattern = 'a'\ncolour = 'x'\n", "unknown key 'colour'", id="unknown key"),
        pytest.param(
            f"[[kernel]]\npattern = '{'a' * 3000}'\ncategory = 'gemm'\n", "no pattern of", id="too long"
        ),
    ],
)
def test_a_wrong_file_of_rules_is_refused_with_a_reason(tmp_path, text, said):
    rules = tmp_path / "mine.toml"
    rules.write_text(text)

    with pytest.raises(KernelRulesError, match=said):
        load_kernel_rules(rules)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda _: None, "mine.toml — cannot be read: .* — name a TOML file", id="missing"),
        pytest.param(lambda path: path.mkdir(), "not a regular file", id="folder"),
        pytest.param(os.mkfifo, "not a regular file", id="fifo"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe"), "not UTF-8 text", id="binary"),
    ],
)
def test_rules_that_are_no_text_file_are_refused(make, said, tmp_path):
    rules = tmp_path / "mine.toml"
    make(rules)

    with pytest.raises(KernelRulesError, match=said):
        load_kernel_rules(rules)


def test_a_catastrophic_pattern_takes_linear_time(tmp_path):
    rules = tmp_path / "mine.toml"
    rules.write_text('[[kernel]]\npattern = "(a+)+(a+)+(a+)+$"\ncategory = "gemm"\n')
    started_s = time.process_time()

    kinds("a" * 50_000 + "!", rules=load_kernel_rules(rules))

    assert time.process_time() - started_s < 30


def test_copies_are_told_beside_any_number_of_names():
    many = classify_kernels(
        names(*(f"frobnicate_{number}" for number in range(300))), load_shipped_kernel_rules()
    )
    kinds_of = ["kernel", "copy", "copy", "fill", "graph", "copy"]
    operations = pl.DataFrame(
        [
            {"op": op, "kind": kind, "name": 299 if kind == "kernel" else None}
            for op, kind in enumerate(kinds_of)
        ],
        schema=OPERATIONS,
    )
    directions = {1: "host-to-device", 2: "peer", 3: "fill", 5: None}
    copies = pl.DataFrame(
        [{"op": op, "direction": direction} for op, direction in directions.items()], schema=COPIES
    )

    found = classify_operations(operations, copies, many)

    assert found.schema == CLASSIFIED
    assert found.select("class", "category", "backend", "matched").rows() == [
        ("compute", "unrecognized", None, False),
        ("copy", "host-to-device", None, True),
        ("communication", "send-recv", "peer-copy", True),
        ("copy", "fill", None, True),
        ("opaque_graph", "graph", None, True),
        ("copy", None, None, True),
    ]
