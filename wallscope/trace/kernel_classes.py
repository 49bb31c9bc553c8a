"""What a kernel is by its name: compute or communication, its category, attention pass, precision.

The patterns are data (`kernels.toml` next to this file). A user's file of the same form has precedence.
Patterns are Rust regular expressions, run by polars in linear time.

Names are those of FlashAttention 2 and 3, cuDNN, PyTorch's memory-efficient attention, flex attention
and common Triton kernels.

The first pattern that matches a name in lower case decides. Names contain scale formats next to the scaled
numbers (`vec16UE4M3` is NVFP4, `vec32UE8M0` is MXFP8), and `bf16` contains `f16`. The accumulation type
(`f32`, the `s` of `s16816gemm`) is often in the name too, so narrow formats come first. cuBLAS's `nvjet`
kernels spell types as letters: `o` 4-bit, `q` and `r` 8-bit, `t` bfloat16, `h` half.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, find_places
from wallscope.errors import KernelRulesError
from wallscope.model.enums import (
    Backend,
    Collective,
    ComputeCategory,
    CopyDirection,
    OperationClass,
    OperationKind,
    Precision,
)
from wallscope.model.schemas import KERNEL_KINDS
from wallscope.records import dataclass
from wallscope.thresholds.causes import FEWEST_ATTENTION_TURNS_COUNT
from wallscope.trace.intervals import Times
from wallscope.trace.names import TextMemo
from wallscope.user_files import MOST_LIST_BYTES, read_user_text

_WORD = "[0-9A-Za-z_]"
"""`\\w` as it is compiled: kernel names are ASCII, and letters of all scripts take three times as long."""
_KEYS = {"pattern", "category", "operation", "backend", "why"}
_LONGEST_PATTERN = 2_000
_Choice = TypeVar("_Choice", ComputeCategory, Collective, Backend)


@dataclass(frozen=True, slots=True)
class KernelRule:
    """Kernels whose name matches `pattern` compute (`backend` is `None`) or communicate."""

    pattern: str
    category: ComputeCategory | Collective
    backend: Backend | None


@cache
def load_shipped_kernel_rules() -> tuple[KernelRule, ...]:
    """The patterns that travel with the package; the first that matches decides."""
    text = Path(__file__).with_name("kernels.toml").read_text(encoding="utf-8")
    return _parse_rules(text, "kernels.toml")


def load_kernel_rules(path: Path | None) -> tuple[KernelRule, ...]:
    """The shipped patterns behind those of the user's file, if there is one.

    Raises:
        KernelRulesError: the file cannot be read, or a rule in it is wrong.
    """
    if path is None:
        return load_shipped_kernel_rules()
    text = read_user_text(path, MOST_LIST_BYTES, "name a TOML file of rules", KernelRulesError)
    own = _parse_rules(text, str(path))
    for row, rule in enumerate(own, start=1):
        _check_pattern(rule.pattern, f"{path} — rule {row}")
    return own + load_shipped_kernel_rules()


def _parse_rules(text: str, origin: str) -> tuple[KernelRule, ...]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise KernelRulesError(f"{origin} — is not valid TOML: {reason} — correct that line") from error
    tables = document.get("kernel")
    if set(document) != {"kernel"} or not isinstance(tables, list):
        raise KernelRulesError(f"{origin} — holds no rules — write one [[kernel]] table for each pattern")
    return tuple(_rule(table, f"{origin} — rule {row}") for row, table in enumerate(tables, start=1))


def _rule(table: object, where: str) -> KernelRule:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise KernelRulesError(f"{where} is not a table of strings — see `wallscope analyze --help`")
    if unknown := sorted(set(table) - _KEYS):
        raise KernelRulesError(f"{where} has the unknown key {unknown[0]!r} — use {', '.join(sorted(_KEYS))}")
    pattern = table.get("pattern", "")
    if not pattern or len(pattern) > _LONGEST_PATTERN:
        raise KernelRulesError(f"{where} has no pattern of 1 to {_LONGEST_PATTERN:,} characters — add one")
    if ("category" in table) == ("operation" in table):
        raise KernelRulesError(
            f"{where} has not one of category (it computes) and operation (it communicates) — give it one"
        )
    if "category" in table:
        if "backend" in table:
            raise KernelRulesError(f"{where} computes and has a backend — leave one of them out")
        return KernelRule(pattern, _choice(ComputeCategory, table, "category", where), None)
    backend = _choice(Backend, table, "backend", where)
    return KernelRule(pattern, _choice(Collective, table, "operation", where), backend)


def _check_pattern(pattern: str, where: str) -> None:
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.ComputeError as error:
        raise KernelRulesError(f"{where} has no valid pattern — correct the regular expression") from error


def _choice(choices: type[_Choice], table: Mapping[str, str], key: str, where: str) -> _Choice:
    try:
        return choices(table.get(key, ""))
    except ValueError:
        raise KernelRulesError(f"{where}: {key} is none of {', '.join(choices)} — pick one") from None


def classify_kernels(names: pl.DataFrame, rules: tuple[KernelRule, ...]) -> pl.DataFrame:
    """Class and category of each name (`NAMES` to `KERNEL_KINDS`); the first rule that matches decides.

    A name that no rule knows is compute of category `unrecognized`, with `matched` false.
    """
    classes: pl.DataFrame = _kinds(rules)[_deciding(rules).of(names["text"])]
    classes.insert_column(0, names["name"])
    return classes if names["name"].is_sorted() else classes.sort("name")


@lru_cache(maxsize=4)
def _deciding(rules: tuple[KernelRule, ...]) -> TextMemo:
    """The place of the rule that decides on each text, behind the last for one that no rule knows."""

    def asked(texts: pl.Series) -> npt.NDArray[np.int64]:
        text = pl.col("text")
        hits = texts.to_frame("text").select(
            *(
                text.str.contains(rule.pattern.replace(r"\w", _WORD)).alias(str(place))
                for place, rule in enumerate(rules)
            ),
            **{str(len(rules)): pl.repeat(value=True, n=pl.len())},
        )
        deciding: npt.NDArray[np.int64] = hits.to_numpy().argmax(axis=1)
        return deciding

    return TextMemo(asked)


@lru_cache(maxsize=4)
def _kinds(rules: tuple[KernelRule, ...]) -> pl.DataFrame:
    """The result of each rule for a name, and after them that for an unmatched name."""
    communicating, computing = OperationClass.COMMUNICATION, OperationClass.COMPUTE
    return pl.DataFrame(
        {
            "class": [*(communicating if rule.backend else computing for rule in rules), computing],
            "category": [*(rule.category for rule in rules), ComputeCategory.UNRECOGNIZED],
            "backend": [*(rule.backend for rule in rules), None],
            "matched": [*(True for _ in rules), False],
        },
        schema={name: dtype for name, dtype in KERNEL_KINDS.items() if name != "name"},
    )


def classify_operations(operations: pl.DataFrame, copies: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """Operations with class and category (`OPERATIONS`, `COPIES`, `KERNEL_KINDS` to `CLASSIFIED`).

    Copies between devices communicate; other copies and fills are copies; a row of graph-mode
    tracing is an opaque graph.
    """
    classes = kinds if kinds["name"].is_sorted() else kinds.sort("name")
    row = as_integers(operations["name"], len(classes)).astype(np.uint32)
    kind = as_integers(operations["kind"])
    row[kind == _GRAPH] = len(classes) + 1
    row[np.isin(kind, _COPYING)] = len(classes) + len(_OTHERS) - 1
    moved, direction = copies["op"].to_numpy(), as_integers(copies["direction"], len(CopyDirection))
    row[moved] = direction.astype(np.uint32) + len(classes) + 2
    return operations.hstack(pl.concat([classes.drop("name"), _OTHERS])[row].get_columns())


def _others() -> pl.DataFrame:
    """The result for a kernel without a name, a graph, copies of each direction and of an unknown one."""
    rows: list[tuple[str | None, ...]] = [(None, None, None), (OperationClass.OPAQUE_GRAPH, "graph", None)]
    for direction in CopyDirection:
        is_peer = direction is CopyDirection.PEER
        peer = (OperationClass.COMMUNICATION, Collective.SEND_RECV, Backend.PEER_COPY)
        rows.append(peer if is_peer else (OperationClass.COPY, direction, None))
    rows.append((OperationClass.COPY, None, None))
    schema = {name: dtype for name, dtype in KERNEL_KINDS.items() if name not in {"name", "matched"}}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(matched=pl.lit(value=True))


_OTHERS = _others()
_GRAPH, *_COPYING = map(
    list(OperationKind).index, (OperationKind.GRAPH, OperationKind.COPY, OperationKind.FILL)
)


COMPUTING = (OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH)
_IS_COMPUTING = np.isin([*OperationClass, ""], COMPUTING)


def is_compute(of_class: Codes) -> Flags:
    """Whether classes, as places in `OperationClass`, are those; -1 is none.

    >>> is_compute(np.array([-1, list(OperationClass).index(OperationClass.COMPUTE)])).tolist()
    [False, True]
    """
    found: Flags = _IS_COMPUTING[of_class]
    return found


_LONGEST_KERNEL = 80
_WRAPPER = re.compile(
    r"((?:\w+::)*(?:device_kernel|kernel_?launcher|kernel|kernel2))<\s*((?:\w+::)*\w+)", re.IGNORECASE
)
"""Kernels that run what their first template argument names."""


def shorten_kernel(name: str) -> str:
    """The name of a kernel without what it returns, its parameters and arguments.

    Of one that runs whatever it is given that is named too.

    >>> shorten_kernel("void at::native::(anonymous namespace)::reduce_kernel<(int)512>(T3)")
    'at::native::reduce_kernel'
    >>> shorten_kernel("void cutlass::device_kernel<flash::FlashAttnBwd<flash::Mainloop<2>>>(T1::Params)")
    'cutlass::device_kernel<flash::FlashAttnBwd>'
    """
    whole = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name.removeprefix("void "))
    if (wrapped := _WRAPPER.match(whole)) is not None and not wrapped[2].isdigit():
        return f"{wrapped[1]}<{wrapped[2]}>"[:_LONGEST_KERNEL]
    return re.split("[<(]", whole, maxsplit=1)[0][:_LONGEST_KERNEL] or name[:_LONGEST_KERNEL]


_BACKWARD = (
    r"(?i)flash_?bwd|flash_bprop|sdpa\w*bprop|FlashAttn(ention)?Bwd|FlashAttentionBackward|AttentionBackward"
    r"|(?-i:fmha_cutlassB)|fmha\w*_?bwd|mha_bwd|attn_bwd|bwd_attn|flex_attention_backward"
)
_FORWARD = (
    r"(?i)flash_?fwd|flash_fprop|sdpa\w*fprop|FlashAttn(ention)?Fwd|FlashAttentionForward|\bAttentionKernel"
    r"|(?-i:fmha_cutlassF)|fmha\w*_?fwd|mha_fwd|attn_fwd|fwd_attn|fused_flex_attention"
)
_BESIDE = r"(?i)dot_do_o|do_o_dot|convert_?d(q|k|v)|preprocess|postprocess|combine|finali[sz]e|reduce"
"""Kernels that help the one that does the work, and run as often or not."""

_TRAINING = r"(?i)backward|bprop|dgrad|wgrad|(^|[^a-z])bwd|bwd([^a-z]|$)|adam|multi_tensor_apply"
_IS_BACKWARD, _IS_FORWARD = 1, 2


@dataclass(frozen=True, slots=True)
class _Turn:
    """Forward attention kernels one after the other, the first of them, and the backward ones behind."""

    first: int
    forward: int
    backward: int


def find_replayed_attention(
    name: Rows, start_ns: Times, windows: pl.DataFrame, kernel_names: pl.DataFrame
) -> Rows:
    """Places of the forward kernels of one rank that are certain to run a second time in their step.

    A step without replays has as many forward as backward kernels, or more if a part of the model is not
    trained. Replays are kernels between backward ones, as many as the backward ones after them. Each other
    forward kernel of the step must have its backward one, so that the counts balance.

    Args:
        name: of the attention kernels of one rank in order of start.
        start_ns: theirs.
        windows: `WINDOWS` of the rank; each is an account of its own.
        kernel_names: `NAMES`.
    """
    kind = _KINDS.of(kernel_names["text"])[find_places(name, kernel_names["name"].to_numpy())]
    place = np.flatnonzero(kind > 0)
    forward = kind[place] == _IS_FORWARD
    bounds = np.searchsorted(start_ns[place], windows.select("start_ns", "end_ns").to_numpy())
    rows = [first + row for first, last in bounds.tolist() for row in _replays(_turns(forward[first:last]))]
    return place[np.array(rows, np.int64)]


def mark_training(texts: pl.Series) -> Flags:
    """Whether kernels of each name belong to a backward pass or to an optimizer: only training has them."""
    return texts.str.contains(_TRAINING).to_numpy()


def _match_attention(texts: pl.Series) -> Rows:
    """Whether kernels of each name do attention forward or backward, and are none that merely help."""
    forward, backward, beside = (
        texts.str.contains(pattern).to_numpy() for pattern in (_FORWARD, _BACKWARD, _BESIDE)
    )
    return np.where(beside, 0, np.where(backward, _IS_BACKWARD, np.where(forward, _IS_FORWARD, 0)))


_KINDS = TextMemo(_match_attention)


def _turns(forward: Flags) -> list[_Turn]:
    edges = np.concatenate(([0], np.flatnonzero(np.diff(forward.astype(np.int8))) + 1, [forward.size]))
    lengths = np.diff(edges)
    begins = 0 if forward.size and forward[0] else 1
    turns = []
    for run in range(begins, lengths.size, 2):
        behind = int(lengths[run + 1]) if run + 1 < lengths.size else 0
        turns.append(_Turn(int(edges[run]), int(lengths[run]), behind))
    return turns


def _replays(turns: list[_Turn]) -> list[int]:
    """Rows of the replays; none where the account does not balance.

    Of a long run of forward kernels the last ones may be replays (all layers are recomputed) or not (the
    last layers are kept).
    """
    for last_are_replays in (True, False):
        open_forward, rows, between = 0, list[int](), 0
        for number, turn in enumerate(turns):
            if number and turn.forward == turn.backward and open_forward >= turn.forward:
                rows.extend(range(turn.first, turn.first + turn.forward))
                between += 1
                open_forward -= turn.forward
                continue
            replayed = turn.backward if last_are_replays else 0
            open_forward += turn.forward - turn.backward - replayed
            rows.extend(range(turn.first + turn.forward - replayed, turn.first + turn.forward))
            if turn.forward < turn.backward + replayed:
                break
        else:
            if between >= FEWEST_ATTENTION_TURNS_COUNT and open_forward == 0:
                return rows
    return []


_PATTERNS = (
    (Precision.NVFP4, r"nvfp4|fp4|vec16ue4m3|e2m1|nvjet_(sm[0-9]+_)?oo"),
    (Precision.MXFP8, r"mxfp8|mx_?f8|vec32ue8m0"),
    (Precision.FP8, r"fp8|(^|[^a-z])float_?8([^0-9]|$)|e4m3|e5m2|nvjet_(sm[0-9]+_)?[qr]{2}"),
    (Precision.INT8, r"(^|[^a-z])int8|i8816|i16832|i8i8|_s8_|(^|_)igemm|(^|_)imma"),
    (Precision.BF16, r"bf16|bfloat16|nvjet_(sm[0-9]+_)?t"),
    (
        Precision.FP16,
        (
            r"(^|[^a-z])fp16|(^|[^ab])float16|(^|[^a-z])half[0-9]?([^a-z0-9]|$)|(^|[^a-z])f16"
            r"|hmma_fp(16|32)_|(^|_)h([0-9]+)?gemm|(^|_)h(884|1688|16816)|nvjet_(sm[0-9]+_)?h"
        ),
    ),
    (Precision.TF32, r"tf32|tfloat32|cutlass_80_tensorop_s1688gemm"),
    (Precision.FP64, r"(^|[^a-z])[dz]gemm|(^|[^a-z])d884|(^|[^a-z])f64|\bdouble"),
    (Precision.FP32, r"(^|[^a-z])g?[sc]gemm|f32f32|(^|[^a-z])fp32|ffma|\bfloat[0-9]?\b"),
)
"""Types are tokens: `halfwarp` multiplies no halves, and `uint8_t` is what a kernel reads masks with."""


def infer_precisions(names: pl.DataFrame) -> pl.DataFrame:
    """Columns `name` and `precision` of kernel names (`NAMES`); `unknown` where no pattern matches.

    >>> names = pl.DataFrame({"name": [0, 1], "text": ["nvjet_tst_128x8_NTN", "my_gemm"]})
    >>> infer_precisions(names)["precision"].to_list()
    ['bf16', 'unknown']
    """
    return pl.DataFrame({"name": names["name"], "precision": _EACH[_TOLD.of(names["text"])]})


def _match_precision(texts: pl.Series) -> npt.NDArray[np.int64]:
    """The place of each text's precision in `Precision`."""
    lower = texts.str.to_lowercase()
    code = np.full(len(texts), _PLACES[Precision.UNKNOWN], np.int64)
    for precision, pattern in reversed(_PATTERNS):
        code[lower.str.contains(pattern).to_numpy()] = _PLACES[precision]
    return code


_EACH = pl.Series("precision", list(Precision), dtype=pl.Enum(Precision))
_PLACES = {precision: place for place, precision in enumerate(Precision)}
_TOLD = TextMemo(_match_precision)
