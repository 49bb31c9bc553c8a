"""Read the configuration of a run from a user's file: YAML, TOML, an argument list or a log.

Names and values come from `configuration_text`. Precedence among sections follows Megatron Bridge. The last
of repeated arguments counts.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from wallscope.advice.assertion_releases import pair_releases
from wallscope.advice.configuration_text import (
    FROM_ELSEWHERE,
    OPAQUE,
    detect_kind,
    parse_command_line,
    parse_log,
    parse_toml,
    parse_yaml,
    read_text,
)
from wallscope.advice.framework_rules import COUNTS_OF_LISTS, framework_defaults, write_layout
from wallscope.advice.rejected_settings import (
    IGNORED_WITH_MEGATRON_FSDP,
    KEPT_KINDS,
    check_releases,
    find_other_framework,
    find_rejected_arguments,
    find_rejected_sections,
    find_unread_switches,
    find_unused_backend,
    report_impossible,
)
from wallscope.advice.settings import (
    SECTIONS,
    Entry,
    Written,
    bare_name,
    check_value,
    complete_settings,
    derive_settings,
    parse_value,
    vocabulary,
)
from wallscope.errors import ConfigurationError
from wallscope.finding_texts import make_finding
from wallscope.model.advice import FileForm, FormKind, KnownSetting, RunConfiguration, Value
from wallscope.model.capture import Finding, Severity
from wallscope.model.finding_codes import FindingCode
from wallscope.records import dataclass
from wallscope.thresholds.verdict import MEANT_KEY_RATIO
from wallscope.user_files import quote_value, quote_word

_OTHER_SECTIONS = ("dataset", "rng", "checkpoint", "rerun_state_machine", "env_vars")
_OF_THE_MODEL = {"transformer", "config", "language_transformer_config"}
"""Names that may stand between a section and a setting of the language model."""

_OFF_UNLESS_SET = {
    "tp_comm_overlap",
    "defer_embedding_wgrad_compute",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "overlap_param_gather_with_optimizer_step",
}
"""Settings that Megatron Bridge's `comm_overlap` disables in the model if it leaves them unset."""

_EITHER_SETS = {
    "te_rng_tracker",
    "use_distributed_optimizer",
    "overlap_param_gather",
    "use_megatron_fsdp",
    "pad_to_max_length",
}
"""Settings of several sections of Megatron Bridge that are on if any of the sections enables them."""

_SECOND_RUN = re.compile(r"MODEL_ARGS_[2-9]\.")
"""Arguments with which a test of Megatron-LM continues after its first run."""

_FILLED = {"encoder_num_layers", "encoder_seq_length", "step_batch_size_schedule"}
"""Arguments that exclude others, which Megatron-LM has set from each other before it logs them."""

_SIZES = (
    *("attention_output_gate", "padded_vocab_size", "window_attn_skip_freq", "window_size"),
    *("mamba_state_dim", "mamba_head_dim", "mamba_num_groups", "mamba_num_heads", "spec"),
    *("linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "moe_shared_expert_gate"),
    "mtp_hybrid_override_pattern",
)
_FEW_KEYS = 100
_LONGEST_NAME = 200
_WITHOUT_EFFECT = "ddp.use_custom_fsdp"
"""A former name that Megatron Bridge's sections still have, and that nothing reads."""


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """Settings of a file that any check uses, the oddities of the file, and what kind of file it is.

    `sizes` are settings of the model that no check uses, by their names without sections.
    """

    configuration: RunConfiguration
    findings: tuple[Finding, ...]
    form: FileForm
    sizes: Mapping[str, object] = field(default_factory=dict)


_OVERRIDING = {
    "Primus": re.compile(r"modules\.[^.]+\.overrides\."),
    "Hydra": re.compile(r"defaults$"),
}
"""Programs whose YAML overrides another file, and a name that shows it."""
_OF_MEGATRON = {
    FormKind.COMMAND,
    FormKind.ALTERNATIVES,
    FormKind.DERIVED,
    FormKind.PARTS_ELSEWHERE,
    FormKind.OVERRIDES,
}
"""Kinds of files whose program reads settings of Megatron."""
_SETTINGS = FileForm(FormKind.SETTINGS, is_whole=True)


@dataclass(slots=True)
class _Contents:
    """The content of a file; `is_complete` if all settings that it leaves out have their default."""

    entries: list[Entry]
    kind: str
    is_complete: bool = False
    repeated: tuple[str, ...] = ()
    is_dump: bool = False
    unknown: list[str] = field(default_factory=list)
    odd: list[Finding] = field(default_factory=list)
    open_names: set[str] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)
    conditional: frozenset[str] = frozenset()
    form: FileForm = _SETTINGS


def read_configuration(path: Path, *, with_defaults: bool = False) -> ConfigurationFile:
    """Read a YAML configuration, an argument list, a log that contains one, or TOML with `name = value`.

    In YAML and logs, hundreds of unused settings are normal, and a value that cannot be read makes its
    setting unknown. In TOML, which is written for wallscope, both are errors.

    Args:
        path: the file.
        with_defaults: add the framework's defaults for settings that a complete file leaves out.

    Raises:
        ConfigurationError: the file cannot be read, sizes contradict, or no value can be read, in TOML one.
    """
    contents = _read_contents(path)
    known = _read_entries(path, contents)
    ignored = tuple(find_unread_switches(path, dict(contents.entries)))
    if ignored:
        known = [
            replace(each, value=False) if each.written in IGNORED_WITH_MEGATRON_FSDP else each
            for each in known
        ]
    is_megatron = contents.kind == "log" or (contents.kind != "yaml" and contents.form.kind in _OF_MEGATRON)
    if not is_megatron:
        names = {each.name for each in known}
        is_misspelled = bool(_find_meant(contents.unknown))
        other = find_other_framework(path, contents.entries, names, is_misspelled=is_misspelled)
        if other is not None:
            return _keep_common(path, known, other)
    if contents.kind == "toml" and contents.unknown:
        odd_name = contents.unknown[0][:_LONGEST_NAME]
        raise ConfigurationError(f"{path} — {odd_name} is an unknown setting{_suggest_setting(odd_name)}")
    if not known and not contents.conditional:
        nothing = f"{path} — has no known setting — name a configuration or a log with one"
        raise ConfigurationError(next(iter(contents.unreadable), nothing))
    if contents.kind == "log" and known and all(each.name != "framework" for each in known):
        known.append(Written(known[0].written, "framework", "megatron-lm"))
    known = [*known, *derive_settings(contents.entries, known)]
    settings, findings = _resolve(path, known, last_counts=contents.kind in {"arguments", "log"})
    framework = settings.get("framework")
    is_dump = contents.kind == "yaml" or (framework is not None and framework.value == "megatron-lm")
    if with_defaults and contents.is_complete and is_dump and framework is not None:
        for name, value in framework_defaults(str(framework.value)).items():
            if name not in contents.open_names:
                settings.setdefault(name, KnownSetting(value, f"default of {framework.value}"))
    settings = complete_settings(settings)
    settings |= pair_releases(settings)
    is_parsed = framework is not None and framework.value == "megatron-lm"
    is_parsed &= contents.kind == "arguments" and contents.form.is_whole
    rejected = contents.entries if is_parsed else ()
    odd = (
        *_find_impossible_sizes(path, settings),
        *find_rejected_arguments(path, rejected, is_open=not contents.is_complete),
        *find_rejected_sections(path, dict(contents.entries)),
        *find_unused_backend(path, {each.name: each.value for each in known}),
        *ignored,
        *contents.odd,
        *findings,
        *_repetitions(path, contents.repeated),
        *_unused(path, contents.unknown, len(known)),
        *_former(path, contents.entries),
        *check_releases(path, contents.entries, settings),
    )
    sizes = {bare_name(written): value for written, value in contents.entries}
    return ConfigurationFile(
        RunConfiguration(settings),
        tuple(_weaken(odd, contents.form)),
        contents.form,
        {name: sizes[name] for name in _SIZES if name in sizes},
    )


def _weaken(findings: Iterable[Finding], form: FileForm) -> Iterator[Finding]:
    """Yield the findings; what would stop a run is a warning where the file does not show all of it."""
    for one in findings:
        is_stop = one.severity is Severity.ERROR and not form.is_whole
        yield replace(one, severity=Severity.WARNING) if is_stop else one


def _keep_common(path: Path, known: Sequence[Written], other: Finding) -> ConfigurationFile:
    """Return the settings that mean the same in any program, with the finding about the program."""
    kinds = vocabulary().kinds
    settings = {
        each.name: KnownSetting(each.value, f"{path.name}: {each.written[:_LONGEST_NAME]}")
        for each in known
        if kinds[each.name] in KEPT_KINDS
    }
    return ConfigurationFile(RunConfiguration(settings), (other,), FileForm(FormKind.OTHER_PROGRAM))


def _read_contents(path: Path) -> _Contents:
    text = read_text(path)
    kind = detect_kind(path, text)
    if kind == "toml":
        return _Contents(parse_toml(path, text), kind)
    if kind == "log":
        printed = [each for each in parse_log(text) if each[0] not in _FILLED]
        return _Contents(printed, kind, form=FileForm(FormKind.LOG, is_whole=True))
    if kind == "arguments":
        line = parse_command_line(path, text, lambda name: _find_current_name(name)[0] is not None)
        return _Contents(
            list(line.entries),
            kind,
            is_complete=not line.is_open,
            conditional=line.conditional,
            form=line.form,
        )
    entries, repeated = parse_yaml(path, text)
    flags = {name.rpartition(".")[2] for name, _ in entries if "--" in name}
    is_dump = str(dict(entries).get("_target_", "")).endswith("ConfigContainer")
    is_complete = is_dump or (bool(flags) and not flags & FROM_ELSEWHERE)
    program = next(
        (name for name, mark in _OVERRIDING.items() if any(mark.match(one) for one, _ in entries)), None
    )
    first = [entry for entry in entries if not _SECOND_RUN.match(entry[0])]
    others = [name for name, _ in entries if _SECOND_RUN.match(name)]
    return _Contents(
        first,
        kind,
        is_complete=is_complete,
        repeated=repeated,
        is_dump=is_dump,
        unknown=others,
        form=_SETTINGS if program is None else FileForm(FormKind.OVERRIDES, program),
    )


def _read_entries(path: Path, contents: _Contents) -> list[Written]:
    known: list[Written] = []
    for written, value in contents.entries:
        name, off = (None, False) if written == _WITHOUT_EFFECT else _find_current_name(written)
        if name is None:
            contents.unknown.append(written)
            continue
        if written in contents.conditional:
            contents.open_names.add(name)
            continue
        is_text = contents.kind in {"log", "arguments"} or written.rpartition(".")[2].startswith("--")
        if value is OPAQUE or (isinstance(value, str) and ("${" in value or (is_text and "$" in value))):
            contents.open_names.add(name)
            continue
        is_switch = contents.is_dump and vocabulary().kinds[name] == "switch"
        is_odd = is_switch and isinstance(value, str | int) and not isinstance(value, bool)
        if is_odd:
            contents.odd.append(_as_python_reads(path, written, value))
        try:
            found = bool(value) if is_odd else _value(name, value, is_text=is_text, off=off)
        except ValueError as error:
            shown = quote_value(value)
            text = f"{path} — {written[:_LONGEST_NAME]}: {shown} {error} — correct that value"
            if contents.kind == "toml":
                raise ConfigurationError(text) from error
            contents.unreadable.append(text)
            contents.odd.append(_call_unreadable(path, written, shown, str(error)))
            contents.open_names.add(name)
            continue
        known.extend(Written(written, *pair) for pair in _with_implied(written, name, found, value))
    return known


def _call_unreadable(path: Path, written: str, shown: str, reason: str) -> Finding:
    return make_finding(
        FindingCode.CONFIGURATION_UNREADABLE,
        file=path.name,
        written=written[:_LONGEST_NAME],
        shown=shown,
        reason=reason,
    )


def _as_python_reads(path: Path, written: str, value: object) -> Finding:
    """Return the finding of a text or number where a switch belongs: all but 0 and nothing is true."""
    return make_finding(
        FindingCode.CONFIGURATION_DISPUTED,
        "spelling",
        file=path.name,
        written=written[:_LONGEST_NAME],
        shown=quote_value(value),
        value=str(bool(value)).lower(),
    )


def _find_current_name(written: str) -> tuple[str | None, bool]:
    """Return the current name, and whether the flag disables it."""
    words = vocabulary()
    if len(written) > _LONGEST_NAME:
        return None, False
    bare = bare_name(written)
    if bare in words.off:
        return words.off[bare], True
    name = words.name(written)
    if name is None and bare.startswith("no_"):
        inside = words.name(bare.removeprefix("no_"))
        return inside, inside is not None
    return name, False


def _value(name: str, value: object, *, is_text: bool, off: bool) -> Value:
    kind = vocabulary().kinds[name]
    if kind == "switch" and type(value) is int and value in {0, 1}:
        value = bool(value)
    if off:
        return value is False or (isinstance(value, str) and value.lower() == "false")
    if is_text and kind == "switch":
        return False if str(value).lower() in {"false", "0", "off"} else value is not None
    if name == "moe_layer_freq" and isinstance(value, list | str):
        has_dense = re.search(r"\b0\b", str(value)) or not re.search(r"[\[\]]", str(value))
        return str(value) if has_dense else "1"
    if name == "cp_comm_type" and isinstance(value, str):
        value = " ".join(dict.fromkeys(re.findall(r"[\w+]+", value)))
    if isinstance(value, str) and (is_text or kind in {"word", "environment", "number"}):
        words = value.split(maxsplit=1) if is_text and kind in _SINGLE else []
        return parse_value(name, words[0] if words else value)
    return (
        _write_list(name, value) if kind == "word" and isinstance(value, list) else check_value(name, value)
    )


def _write_list(name: str, items: list[object]) -> str:
    if name == "pipeline_model_parallel_layout":
        return write_layout(items)
    return str(items[0]) if name == "cp_comm_type" and len(set(map(str, items))) == 1 else str(items)


_SINGLE = {"sizes", "whole", "number"}
"""Kinds whose flag takes one word; later words do not belong to the flag."""


def _with_implied(written: str, name: str, value: Value, raw: object) -> Iterator[tuple[str, Value]]:
    yield name, value
    leaf = bare_name(written)
    if leaf.removeprefix("no_") == "check_for_nan_in_loss_and_grad":
        yield "check_for_nan_in_grad", value
    if isinstance(raw, list) and name in COUNTS_OF_LISTS:
        yield COUNTS_OF_LISTS[name], len(raw)


def _resolve(
    path: Path, known: list[Written], *, last_counts: bool
) -> tuple[dict[str, KnownSetting], list[Finding]]:
    """Return one value per setting: from the section with precedence, unless it has none."""
    in_bridge = any(each.name == "framework" and each.value == "megatron-bridge" for each in known)
    by_name: dict[str, list[Written]] = {}
    for each in reversed(known) if last_counts else known:
        by_name.setdefault(each.name, []).append(each)
    settings: dict[str, KnownSetting] = {}
    findings: list[Finding] = []
    for name, same in by_name.items():
        if not last_counts and (rivals := _find_sizes_of_parts(name, same)):
            one, other = rivals
            findings.append(
                make_finding(
                    FindingCode.CONFIGURATION_DISPUTED,
                    "parts",
                    file=path.name,
                    one=one.written,
                    one_value=quote_word(one.value),
                    other=other.written,
                    other_value=quote_word(other.value),
                )
            )
            continue
        chosen = _choose_as_bridge(name, same) if in_bridge else None
        if chosen is None:
            chosen, found = _choose(path, name, same, last_counts=last_counts)
            findings += found
        settings[name] = KnownSetting(chosen.value, f"{path.name}: {chosen.written[:_LONGEST_NAME]}")
    return settings, findings


def _find_sizes_of_parts(name: str, same: Sequence[Written]) -> tuple[Written, Written] | None:
    """Return two values of a size in sections that are not Megatron's: each may be of another program."""
    given = [each for each in same if each.value is not None and _precedence(each) > len(SECTIONS)]
    if vocabulary().kinds[name] != "sizes" or len(given) < len(same):
        return None
    return next(((given[0], each) for each in given if each.value != given[0].value), None)


def _choose_as_bridge(name: str, same: Sequence[Written]) -> Written | None:
    """Return the value that Megatron Bridge derives for a setting of several sections."""
    by_section = {each.written.partition(".")[0]: each for each in reversed(same)}
    overlap = by_section.get("comm_overlap")
    if overlap is not None and overlap.value is None and name in _OFF_UNLESS_SET:
        return Written(overlap.written, name, value=False)
    if overlap is not None and overlap.value is not None:
        return overlap
    precise = [each for each in same if each.written.partition(".")[0] == "mixed_precision"]
    if precise:
        gathered = (each for each in precise if each.written.endswith("_param_gather"))
        return next(gathered, next((each for each in precise if each.value), precise[0]))
    if name in _EITHER_SETS:
        return next((each for each in same if each.value is True), None)
    return None


def _choose(
    path: Path, name: str, same: list[Written], *, last_counts: bool
) -> tuple[Written, list[Finding]]:
    given = [each for each in same if each.value is not None] or same
    if last_counts:
        return same[0], []
    chosen = min(given, key=_precedence)
    others = [each for each in given if each.value != chosen.value]
    rivals = [each for each in others if _precedence(each) < len(SECTIONS)]
    if not rivals and _precedence(chosen) > len(SECTIONS):
        rivals = others
    if rivals and vocabulary().kinds[name] == "sizes":
        raise ConfigurationError(
            f"{path} — {chosen.written} is {chosen.value} and {rivals[0].written} is {rivals[0].value} —"
            " keep the correct one"
        )
    if others and _precedence(chosen) == _precedence(others[0]):
        return chosen, [_disputed(path, chosen, others[0])]
    return chosen, []


def _precedence(each: Written) -> int:
    """Return the precedence of the innermost section, such as `model` in `model.transformer.seq_length`."""
    within: list[str] = []
    for section in reversed(each.written.split(".")[:-1]):
        if section in SECTIONS and set(within) <= _OF_THE_MODEL:
            return SECTIONS.index(section)
        if section in _OTHER_SECTIONS:
            return len(SECTIONS)
        within.append(section)
    return len(SECTIONS) + 1


def _disputed(path: Path, one: Written, other: Written) -> Finding:
    return make_finding(
        FindingCode.CONFIGURATION_DISPUTED,
        "twice",
        file=path.name,
        one=one.written,
        one_value=quote_word(one.value),
        other=other.written,
        other_value=quote_word(other.value),
    )


def _find_impossible_sizes(path: Path, settings: dict[str, KnownSetting]) -> Iterator[Finding]:
    """Yield a finding for each size that does not divide another one."""

    def size(name: str) -> int | None:
        value = settings[name].value if name in settings else None
        return value if isinstance(value, int) else None

    world, stages = size("world_size"), size("pipeline_model_parallel_size")
    tensor, context = size("tensor_model_parallel_size"), size("context_parallel_size")
    product = (tensor or 1) * (stages or 1) * (context or 1)
    if world is not None and world % product:
        yield report_impossible(
            f"{path.name}: {world} ranks are not a multiple of TP x PP x CP = {product}", "change the sizes"
        )
    in_bridge = "framework" in settings and settings["framework"].value == "megatron-bridge"
    for prefix in ("", "eval_"):
        batch, micro = size(f"{prefix}global_batch_size"), size(f"{prefix}micro_batch_size")
        if batch is not None and micro is not None and batch % micro:
            is_later = in_bridge and not prefix
            when = ": Megatron Bridge accepts both, and training stops at its first step" if is_later else ""
            yield make_finding(
                FindingCode.CONFIGURATION_IMPOSSIBLE,
                severity=Severity.WARNING if is_later else Severity.ERROR,
                file=path.name,
                prefix=prefix,
                batch=batch,
                micro=micro,
                when=when,
            )


def _suggest_setting(written: str) -> str:
    leaf = written.rpartition(".")[2]
    close = difflib.get_close_matches(leaf, vocabulary().kinds, 1)
    return f" — did you mean {close[0]}?" if close else " — remove it"


def _unused(path: Path, unknown: list[str], known: int) -> Iterator[Finding]:
    if not unknown:
        return
    close = _find_meant(unknown)
    for name, meant in close.items():
        yield make_finding(FindingCode.CONFIGURATION_MISSPELLED, file=path.name, name=name, meant=meant)
    rest = len(unknown) - len(close)
    if rest:
        yield make_finding(
            FindingCode.CONFIGURATION_UNUSED, file=path.name, unchecked=rest, all=len(unknown) + known
        )


def _find_meant(unknown: list[str]) -> dict[str, str]:
    """Return the known names that unknown ones of a short file nearly have."""
    kinds = vocabulary().kinds
    return {
        name: match[0]
        for name in (unknown if len(unknown) <= _FEW_KEYS else [])
        if len(name) <= _LONGEST_NAME
        and (match := difflib.get_close_matches(name.rpartition(".")[2], kinds, 1, MEANT_KEY_RATIO))
    }


def _repetitions(path: Path, names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        yield make_finding(FindingCode.CONFIGURATION_REPEATED, file=path.name, name=name[:99])


def _former(path: Path, entries: Iterable[Entry]) -> Iterator[Finding]:
    former = vocabulary().former
    for written, value in entries:
        leaf = bare_name(written)
        if leaf in former and value not in (None, False, [], "False", "None"):
            name = former[leaf]
            is_read = written != _WITHOUT_EFFECT
            yield make_finding(
                FindingCode.CONFIGURATION_FORMER_NAME,
                severity=Severity.INFO if is_read else Severity.WARNING,
                file=path.name,
                written=written,
                name=name,
                effect="" if is_read else ", and has no effect",
            )
