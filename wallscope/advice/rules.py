"""The rules: which fix addresses which causes, under which conditions, with which settings and evidence.

Rules are data in `rules/<topic>.toml` next to this file; tests check what they name. Settings are
written as a user writes them: `section.key=value`, `--flag value`, `NAME=value`. Conditions (`when`) follow
conditions.py, on the names of measurements.py and on settings. What a change leaves of a category's time is
estimated by what its kernels are: FP32 on CUDA cores gains more than TF32, and attention more than
convolutions. The source of each ratio is in thresholds/verdict.py.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta

from wallscope.advice.conditions import Clause, parse_clause
from wallscope.advice.measurements import MEASUREMENTS, MeasuredRun
from wallscope.advice.settings import vocabulary
from wallscope.files import list_toml_paths, make_entry, read_toml
from wallscope.model.advice import ExpectedGain, Phase, RunConfiguration, Setting, System
from wallscope.model.analysis import ComputeWork, Reason, UnitKind
from wallscope.model.cause_catalogue import CALL, DRAINED, WAIT, list_cause_meanings
from wallscope.model.enums import ComputeCategory, Precision, Wall
from wallscope.model.rank_summaries import CategoryPrecision, ComputeDetails
from wallscope.model.whatif import Question, QuestionKind
from wallscope.records import dataclass
from wallscope.thresholds import verdict as ratios
from wallscope.thresholds.verdict import MATERIAL_SHARE

PRESSURE = "memory-pressure"
"""Pseudo-cause of a rule against running out of memory, to which no time is attributed."""

Estimate = Callable[[str, str], float | None]
"""The remaining share of a replay target, by the name of the estimate; `None`: no change."""

_Text = Annotated[str, Meta(min_length=3)]
_Id = Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
_FactId = Annotated[str, Meta(pattern=r"^[A-Z]+[0-9]*-[A-Z]?[0-9]+$")]


@dataclass(frozen=True, slots=True)
class Gain:
    """A published measurement, as `ExpectedGain`."""

    text: _Text
    context: _Text
    low: Annotated[float, Meta(gt=0)] | None = None
    high: Annotated[float, Meta(gt=0)] | None = None

    def quote(self) -> ExpectedGain:
        """Return it as in the answer."""
        return ExpectedGain(self.text, self.low, self.high, self.context)


@dataclass(frozen=True, slots=True)
class Rule:
    """One fix as in the files.

    `causes` are patterns of cause ids. `order` sorts rules for the same cause, lower first. `settings` has
    lines by system. `active` describes the evidence that the fix runs, and `compare` what to hold fixed in
    addition to the usual. `replay` lists the options of `wallscope whatif` that together compute the gain.
    There, `CAUSES` stands for the causes of the rule, and a name of `ESTIMATES` for a share that the
    kernels determine. `facts` are ids of the fact tables. `about` is capture for a change of the capture,
    which is not a recommendation. A `generic` fix has no specific evidence in the capture and comes last.
    One with `is_last_resort` is only for a large wall that no other one addresses.
    `refuted` describes what a further capture shows if the fix has no effect. `megatron_caveats` apply to
    Megatron programs only. A rule with `late` is for what holds a job up, and not for its causes elsewhere:
    patterns of `unit/reason` (`UnitKind`, `Reason`). Its `title_of_unit` is the title with that unit, for
    which `{unit}` stands.
    """

    id: _Id
    title: _Text
    wall: Wall
    causes: Annotated[tuple[str, ...], Meta(min_length=1)]
    phase: Phase
    because: _Text
    active: _Text
    source: _Text
    order: int = 50
    about: Literal["program", "capture"] = "program"
    generic: bool = False
    is_last_resort: bool = False
    refuted: str = ""
    when: tuple[Clause, ...] = ()
    settings: dict[System, Annotated[tuple[_Text, ...], Meta(min_length=1)]] = field(default_factory=dict)
    preconditions: tuple[str, ...] = ()
    gain: Gain | None = None
    caveats: tuple[_Text, ...] = ()
    megatron_caveats: tuple[_Text, ...] = ()
    compare: str = ""
    replay: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    title_of_unit: str = ""
    facts: tuple[_FactId, ...] = ()

    @property
    def measured(self) -> frozenset[str]:
        """The measurements and settings that its conditions name."""
        return frozenset(name for clause in self.when for condition in clause for name in condition.names())

    @property
    def all_caveats(self) -> tuple[str, ...]:
        """The caveats for all programs."""
        return (*self.caveats, *self.megatron_caveats)

    def answers(self, cause: str) -> bool:
        """Return whether the rule addresses a cause."""
        return not self.late and _is_any(self.causes, cause)

    def answers_unit(self, unit: UnitKind, reason: Reason) -> bool:
        """Return whether the rule addresses such a unit that holds a job up."""
        return _is_any(self.late, f"{unit}/{reason}")

    def all_settings(self) -> tuple[Setting, ...]:
        """Return the settings one by one, in the order of the file."""
        return tuple(_setting(system, line) for system, lines in self.settings.items() for line in lines)

    def questions(self, causes: Sequence[str], estimate: Estimate | None = None) -> tuple[Question, ...]:
        """Return the replay questions of the rule for these causes; none for shares without an estimate."""
        return tuple(question for line in self.replay for question in _questions(line, causes, estimate))


@lru_cache(maxsize=1 << 14)
def _is_any(patterns: tuple[str, ...], cause: str) -> bool:
    return cause in patterns or any(
        fnmatchcase(cause, pattern) for pattern in patterns if _WILD.search(pattern)
    )


def _questions(line: str, causes: Sequence[str], estimate: Estimate | None = None) -> Iterator[Question]:
    """Yield a question per cause if the target is `CAUSES`, else the only one.

    Of a cause that names a call, a fix removes the call's wait, and not the host time behind it.

    >>> [one.option for one in _questions("--scale CAUSES=0", ["host/file", "host/lock"])]
    ['--scale host/file=0', '--scale host/lock=0']

    Raises:
        ValueError: it is not an option of `wallscope whatif`.
    """
    match = _REPLAY.fullmatch(line)
    kind = next((kind for kind in get_args(QuestionKind) if match and match["kind"] == kind), None)
    if match is None or kind is None or (kind == "scale") == (match["share"] is None):
        raise ValueError(f"replay {line!r} has no question")
    parts = [cause.replace(DRAINED, WAIT) for cause in causes]
    for target in parts if match["target"] == "CAUSES" else (match["target"],):
        if match["share"] in ESTIMATES:
            share = None if estimate is None else estimate(match["share"], target)
            if share is not None:
                yield Question(kind, target, share)
        else:
            yield Question(kind, target, None if match["share"] is None else float(match["share"]))


def _setting(system: System, line: str) -> Setting:
    if system in _VERBATIM:
        return Setting(system, line, "")
    key, value, *_ = [*re.split(r"[ =]", line, maxsplit=1), ""]
    return Setting(system, key, value)


@cache
def fix_rules() -> tuple[Rule, ...]:
    """Return all shipped rules, by topic and in the order of the files."""
    return tuple(
        rule for path in list_toml_paths("advice/rules") for rule in read_rules(read_toml(path), path)
    )


@cache
def list_light_limits() -> tuple[dict[str, Any], ...]:
    """Return what fixes of the compute wall can remove of the ledger, as `light.toml` states it."""
    return tuple(read_toml("advice/light.toml")["limit"])


def read_rules(document: Mapping[str, Any], origin: str) -> Iterator[Rule]:
    """Yield the rules of one file.

    Raises:
        ValueError: a field is missing, unknown or of a wrong form; the message names the entry.
    """
    for table in document.get("fix", []):
        try:
            clauses = tuple(map(parse_clause, table.get("when", ())))
            yield make_entry({**table, "when": clauses}, Rule)
        except ValueError as error:
            raise ValueError(f"{origin}: {table.get('id')}: {error}") from error


def check_rules(document: Mapping[str, Any], origin: str) -> tuple[Rule, ...]:
    """Return the rules of one file, after a check of all that they name: `make test` checks the shipped ones.

    Raises:
        ValueError: the file has an error; the message names the entry.
    """
    rules = tuple(read_rules(document, origin))
    if doubled := sorted(rule for rule, count in Counter(rule.id for rule in rules).items() if count > 1):
        raise ValueError(f"{origin}: rules with the same id: {doubled}")
    for rule in rules:
        if problems := list(_problems(rule)):
            raise ValueError(f"{origin}: {rule.id}: {'; '.join(problems)}")
    return rules


@cache
def _known_causes() -> tuple[str, ...]:
    return (*(cause.replace(CALL, "cudaStreamSynchronize") for cause, _ in list_cause_meanings()), PRESSURE)


def _problems(rule: Rule) -> Iterator[str]:
    if unknown := sorted(rule.measured - set(MEASUREMENTS) - set(vocabulary().kinds)):
        yield f"unknown measurements or settings {unknown}"
    try:
        rule.questions(rule.causes)
    except ValueError as error:
        yield str(error)
    for pattern in rule.causes:
        fixed = pattern if not pattern.startswith(DRAINED) else f"{DRAINED}*"
        if not any(_is_any((fixed,), cause) for cause in _known_causes()):
            yield f"no cause matches {pattern!r}"
    units = [f"{unit}/{reason}" for unit in UnitKind for reason in Reason]
    if dead := [pattern for pattern in rule.late if not any(fnmatchcase(one, pattern) for one in units)]:
        yield f"no unit and reason match {dead}"
    if "{unit}" not in rule.title_of_unit and rule.title_of_unit:
        yield "title_of_unit names no {unit}"
    for system, lines in rule.settings.items():
        if system not in _VERBATIM and (
            bad := [line for line in lines if "=" not in line and not line.startswith("--")]
        ):
            yield f"{system} settings without a value: {bad}"


_WILD = re.compile(r"[*?\[]")
_REPLAY = re.compile(r"--(?P<kind>\w+) (?P<target>.+?)(=(?P<share>[\d.]+|[A-Z]+\d*))?")
_VERBATIM: tuple[System, ...] = (
    "pytorch",
    "jax",
    "tensorflow",
    "inference",
    "directives",
    "julia",
    "program",
    "launcher",
)


_TO_BF16: Mapping[tuple[ComputeCategory, Precision], float] = {
    (ComputeCategory.ATTENTION, Precision.FP32): ratios.BF16_ATTENTION_OF_FP32_RATIO,
    (ComputeCategory.ATTENTION, Precision.TF32): ratios.BF16_GEMM_OF_TF32_RATIO,
    (ComputeCategory.GEMM, Precision.TF32): ratios.BF16_GEMM_OF_TF32_RATIO,
    (ComputeCategory.GEMM, Precision.FP32): ratios.BF16_GEMM_OF_FP32_RATIO,
    (ComputeCategory.GROUPED_GEMM, Precision.TF32): ratios.BF16_GEMM_OF_TF32_RATIO,
    (ComputeCategory.GROUPED_GEMM, Precision.FP32): ratios.BF16_GEMM_OF_FP32_RATIO,
    (ComputeCategory.CONVOLUTION, Precision.TF32): ratios.BF16_CONVOLUTION_OF_TF32_RATIO,
    (ComputeCategory.CONVOLUTION, Precision.FP32): ratios.BF16_CONVOLUTION_OF_FP32_RATIO,
}
_TO_TF32: Mapping[tuple[ComputeCategory, Precision], float] = {
    (ComputeCategory.GEMM, Precision.FP32): ratios.TF32_GEMM_OF_FP32_RATIO,
    (ComputeCategory.GROUPED_GEMM, Precision.FP32): ratios.TF32_GEMM_OF_FP32_RATIO,
}
FUSED = "FUSED"
ESTIMATES = {"BF16": _TO_BF16, "TF32": _TO_TF32, FUSED: {}}
"""Ratios by their name in the rules; those of fused attention are measured."""
_TARGET = "category:"


def estimate_left_share(name: str, target: str, found: Sequence[CategoryPrecision]) -> float | None:
    """Return the remaining share of a category's time; `None` if the change is not material.

    >>> work = CategoryPrecision(ComputeCategory.GEMM, Precision.TF32, 80, 0.8, 1)
    >>> rest = CategoryPrecision(ComputeCategory.GEMM, Precision.BF16, 20, 0.2, 1)
    >>> estimate_left_share("BF16", "category:gemm", (work, rest))
    0.6
    """
    own = [entry for entry in found if f"{_TARGET}{entry.category}" == target]
    whole_ns = sum(entry.work_ns for entry in own)
    if not whole_ns:
        return None
    of = ESTIMATES[name]
    left = sum(of.get((entry.category, entry.precision), 1.0) * entry.work_ns for entry in own) / whole_ns
    return None if left > 1 - MATERIAL_SHARE else round(left, 2)


def estimate_without_unfused_attention(
    target: str, details: ComputeDetails, works: Sequence[ComputeWork]
) -> float | None:
    """Return the share of a category's work that is not between the multiplications of attention.

    `works` is all compute of the step. The result is `None` if attention is fused, or this is not material.
    """
    between = () if details.unfused_attention is None else details.unfused_attention.between
    gone_ns = sum(entry.work_ns for entry in between if f"{_TARGET}{entry.category}" == target)
    whole_ns = sum(entry.work_ns for entry in works if f"{_TARGET}{entry.category}" == target)
    if not whole_ns or gone_ns < MATERIAL_SHARE * whole_ns:
        return None
    return round(max(1 - gone_ns / whole_ns, 0.0), 2)


def estimate_share(run: MeasuredRun, name: str, target: str) -> float | None:
    """Return the estimated remaining share of a replay target; `None` if the change is not material."""
    details = run.rank.compute_details
    if details is not None and name == FUSED:
        return estimate_without_unfused_attention(target, details, run.rank.compute)
    return None if details is None else estimate_left_share(name, target, details.category_precisions)


_AS_WRITTEN: Final[frozenset[System]] = frozenset(
    {"megatron-bridge", "megatron-lm", "environment", "launcher", "nsys"}
)
_PYTHON: Final[frozenset[System]] = frozenset({"pytorch", "jax", "tensorflow", "inference"})
_LIBRARIES: Final = frozenset({"torch", "jax", "tf", "gc"})
"""Names that a line may use without more than an import."""
_PLACEHOLDER = re.compile(r"<[^<>]+>|\.\.\.|\b(FILE|REGEX|AXIS)\b")
_OPTION = re.compile(r"--?[a-z][\w-]*([ =]\S+)?|[A-Z][A-Z0-9_]*=\S+")
_AT_MOST = re.compile(r"<EP size, at most (\d+)>")

_Fill = Callable[[int], int | None]


def _halve_evenly(value: int) -> int | None:
    return value // 2 if value > 1 and value % 2 == 0 else None


_KNOWN: Final[Mapping[tuple[str, str], tuple[str, _Fill]]] = {
    ("micro_batch_size", "<twice as large>"): ("micro_batch_size", lambda value: 2 * value),
    ("tensor_model_parallel_size", "<half>"): ("tensor_model_parallel_size", _halve_evenly),
    ("expert_model_parallel_size", "<number of experts>"): ("num_moe_experts", lambda value: value),
}
"""By setting and placeholder: the setting of the run that determines the value, and how."""


def fill_placeholders(setting: Setting, run: RunConfiguration) -> Setting:
    """Return a setting with its value if the run determines it, else unchanged.

    >>> from wallscope.model.advice import KnownSetting
    >>> run = RunConfiguration({"micro_batch_size": KnownSetting(2, "file")})
    >>> fill_placeholders(Setting("megatron-lm", "--micro-batch-size", "<twice as large>"), run).write()
    '--micro-batch-size 4'
    """
    name = setting.key.rpartition(".")[2].removeprefix("--").replace("-", "_")
    source, fill = _KNOWN.get((name, setting.value), ("", _halve_evenly))
    if limited := _AT_MOST.fullmatch(setting.value):
        source, fill = "expert_model_parallel_size", lambda value: min(value, int(limited[1]))
    known = run.get(source) if source else None
    if not isinstance(known, int) or isinstance(known, bool) or known < 1:
        return setting
    value = fill(known)
    return setting if value is None else Setting(setting.system, setting.key, str(value))


def is_sketch(system: System, line: str) -> bool:
    """Return whether a line of settings of a system must be completed or adapted before it runs.

    Flags, keys of a configuration and variables of the environment run as written. Code does if it needs
    nothing but a library; what uses variables of a program does not.

    >>> is_sketch("pytorch", "torch.backends.cudnn.benchmark = True")
    False
    >>> is_sketch("pytorch", "pool.submit(prepare, i + 1)")
    True
    >>> is_sketch("environment", "NVLINK_DOMAIN_SIZE=72")
    False
    """
    code = line.partition("  # ")[0].strip()
    if _PLACEHOLDER.search(code):
        return True
    if system in _AS_WRITTEN or _OPTION.fullmatch(code):
        return False
    return system not in _PYTHON or not _needs_only_libraries(code)


def _needs_only_libraries(code: str) -> bool:
    """Return whether a line is Python that calls or sets something of a library, by no name of a program."""
    try:
        parsed = ast.parse(code)
    except SyntaxError:
        return False
    names = {node.id for node in ast.walk(parsed) if isinstance(node, ast.Name)}
    does = all(
        isinstance(node, ast.Assign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        for node in parsed.body
    )
    made = [node.value for node in parsed.body if isinstance(node, ast.Expr)]
    is_lost = any(isinstance(one, ast.Call) and _is_class(one.func) for one in made)
    return does and bool(names) and names <= _LIBRARIES and not is_lost


def _is_class(called: ast.expr) -> bool:
    """Return whether a call makes an object, which does nothing if it is not kept."""
    return isinstance(called, ast.Attribute) and called.attr[:1].isupper()
