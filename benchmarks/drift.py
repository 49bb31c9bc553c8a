"""What changed in Megatron-Core and Megatron Bridge since the knowledge base was written.

Compares all fields of the configuration classes, their defaults, all arguments, all assertions and layouts of
presets with checkouts, which are parsed and never run. With `--history` the folders are clones, and
assertions are compared with every tag of a release.

    python -m benchmarks.drift --megatron ../Megatron-LM --bridge ../Megatron-Bridge
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.stops import compare_assertions, list_release_tags, read_checkout, read_release_at
from wallscope.advice.framework_rules import framework_defaults
from wallscope.advice.launches import list_arguments
from wallscope.advice.published import presets
from wallscope.advice.rejected_settings import releases
from wallscope.advice.settings import vocabulary
from wallscope.files import read_toml

_DATACLASSES = {
    "megatron/core/model_parallel_config.py": "ModelParallelConfig",
    "megatron/core/transformer/transformer_config.py": "TransformerConfig",
    "megatron/core/distributed/distributed_data_parallel_config.py": "DistributedDataParallelConfig",
    "megatron/core/optimizer/optimizer_config.py": "OptimizerConfig",
}
_OF_DATACLASS = {"te_rng_tracker": "use_te_rng_tracker", "fp8_param_gather": "fp8_param"}
_OF_LAYOUT = {
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "expert_model_parallel_size": "expert",
}
_ARGUMENTS = {
    "fake_process_group",
    "fp4_format",
    "gtp_expert_remat_nccl_ub",
    "gtp_remat_nccl_ub",
    "hybrid_layer_pattern",
    "use_nccl_ub",
}
"""Settings of Megatron-LM's arguments alone."""
_RECIPE = re.compile(r"_pretrain_\d+gpu_\w+_config$")
_ARGUMENT = re.compile(r"""add_argument\(\s*(?:['"]-\w+['"],\s*)?['"]--([A-Za-z][\w-]*)['"]""")
_UNTOLD = object()
_OLDEST = {"megatron": (0, 12), "bridge": (0, 2)}
"""The oldest releases that assertions are compared with."""


def read_fields(root: Path) -> dict[str, object]:
    """Return the fields of the configuration classes of a checkout of Megatron-LM with their defaults.

    Raises:
        SystemExit: the checkout has none of the files.
    """
    found: dict[str, object] = {}
    for path, name in _DATACLASSES.items():
        if (root / path).is_file():
            found = {**_fields_of(ast.parse((root / path).read_text(encoding="utf-8")), name), **found}
    if not found:
        raise SystemExit(f"{root} — holds no megatron/core — name a checkout of Megatron-LM")
    return found


def _fields_of(module: ast.Module, class_name: str) -> dict[str, object]:
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            return {
                each.target.id: _literal(each.value)
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            }
    return {}


def _literal(node: ast.expr | None) -> object:
    if isinstance(node, ast.Call):
        named = {word.arg: word.value for word in node.keywords}
        return [] if "default_factory" in named else _literal(named.get("default"))
    try:
        return _UNTOLD if node is None else ast.literal_eval(node)
    except ValueError:
        return _UNTOLD


def compare_settings(fields: Mapping[str, object]) -> Iterator[str]:
    """Yield settings that a checkout has and the knowledge base lacks, the reverse, and other defaults."""
    known = vocabulary()
    unasked = {name for names in read_toml("advice/settings.toml")["unasked"].values() for name in names}
    core = framework_defaults("megatron-core")
    for name in sorted(fields):
        if known.name(name) is None and name not in unasked:
            yield f"setting {name}: in the checkout, not in settings.toml"
    for name in sorted(unasked - set(fields)):
        yield f"setting {name}: among the unasked in settings.toml, not in the checkout"
    for name, default in sorted(core.items()):
        field = _OF_DATACLASS.get(name, name)
        if field not in fields:
            yield f"setting {name}: in defaults.toml, not in the checkout"
        elif fields[field] is not _UNTOLD and not _is_same(fields[field], default):
            yield f"default of {name}: {default} in defaults.toml, {fields[field]} in the checkout"


def compare_releases(fields: Mapping[str, object], release: tuple[int, int]) -> Iterator[str]:
    """Yield settings that a checkout has before their first release in releases.toml, and the reverse."""
    for name, first in sorted(releases("since", "megatron-lm").items()):
        if first > release and name in fields:
            yield f"setting {name}: from {'.'.join(map(str, first))} in releases.toml, in the checkout before"
        elif first <= release and name not in fields and name not in _ARGUMENTS:
            yield f"setting {name}: from {'.'.join(map(str, first))} in releases.toml, not in the checkout"


def read_arguments(root: Path) -> set[str]:
    """Return the arguments that programs of a checkout of Megatron-LM accept, without their dashes."""
    found: set[str] = set()
    for path in (*(root / "megatron").rglob("*.py"), *root.glob("pretrain_*.py")):
        text = path.read_text(encoding="utf-8")
        found |= set(_ARGUMENT.findall(text))
        if "@dataclass" in text and "config" in str(path.relative_to(root)):
            classes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
            found |= {name for one in classes for name in _fields_of(ast.Module([one], []), one.name)}
    return {name.replace("_", "-") for name in found}


def compare_arguments(arguments: set[str]) -> Iterator[str]:
    """Yield arguments that a checkout has and the knowledge base lacks."""
    for name in sorted(arguments - list_arguments()):
        yield f"argument --{name}: in the checkout, not in arguments.txt"


def read_release(root: Path) -> tuple[int, int] | None:
    """Return the release of a checkout of Megatron-LM or Megatron Bridge, `None` if it has none."""
    paths = (root / folder / "package_info.py" for folder in ("megatron/core", "src/megatron/bridge"))
    text = "".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())
    numbers = dict(re.findall(r"^(MAJOR|MINOR) = (\d+)$", text, re.MULTILINE))
    return (int(numbers["MAJOR"]), int(numbers["MINOR"])) if len(numbers) > 1 else None


def _is_same(theirs: object, ours: object) -> bool:
    if isinstance(theirs, list) or theirs == "full":
        return ours == () or ours == tuple(theirs)
    return (None if theirs == "none" else theirs) == ours


def read_layouts(root: Path) -> dict[str, dict[str, int]]:
    """Return the parallel sizes that performance recipes of Megatron Bridge set, by name of the preset."""
    found: dict[str, dict[str, int]] = {}
    for path in sorted((root / "src/megatron/bridge/perf_recipes").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and _RECIPE.search(node.name):
                name = node.name.replace("_pretrain_", "_").removesuffix("_config")
                found[name] = dict(_sizes_of(node))
    return found


def _sizes_of(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            name, value = node.targets[0].attr, _literal(node.value)
            if name in _OF_LAYOUT and isinstance(value, int):
                yield name, value


def compare_presets(layouts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield presets that one side lacks, and sizes that differ; what a recipe leaves out is unknown."""
    ours = {each.name: each for each in presets()}
    for name in sorted(ours.keys() - layouts.keys()):
        yield f"preset {name}: in presets.toml, not in the checkout"
    for name in sorted(layouts.keys() - ours.keys()):
        if "expert_model_parallel_size" in layouts[name]:
            yield f"preset {name}: in the checkout, not in presets.toml"
    for name in sorted(ours.keys() & layouts.keys()):
        if not ours[name].states_layout:
            continue
        for size, value in layouts[name].items():
            here = getattr(ours[name].sizes, _OF_LAYOUT[size])
            if here != value:
                yield f"preset {name}: {size} is {here} in presets.toml, {value} in the checkout"


def compare_history(clones: Mapping[str, Path | None]) -> Iterator[str]:
    """Yield assertions whose releases differ from the tags of clones, by `megatron` and `bridge`."""
    for program, clone in clones.items():
        if clone is None:
            continue
        for release, tag in list_release_tags(clone, program).items():
            if release >= _OLDEST[program]:
                yield from compare_assertions(read_release_at(clone, tag, program), release, program)


def main() -> int:
    """Print what differs; the exit code is 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megatron", type=Path, help="A checkout of Megatron-LM.")
    parser.add_argument("--bridge", type=Path, help="A checkout of Megatron Bridge.")
    parser.add_argument(
        "--history", action="store_true", help="Compare the assertions with tags of releases."
    )
    options = parser.parse_args()
    lines: list[str] = []
    if options.history:
        lines += compare_history({"megatron": options.megatron, "bridge": options.bridge})
    elif options.megatron is not None:
        fields = read_fields(options.megatron)
        lines += compare_settings(fields)
        lines += compare_arguments(read_arguments(options.megatron))
        release = read_release(options.megatron)
        if release:
            lines += compare_releases(fields, release)
            lines += compare_assertions(read_checkout(options.megatron, "megatron"), release, "megatron")
    if options.bridge is not None and not options.history:
        lines += compare_presets(read_layouts(options.bridge))
        release = read_release(options.bridge)
        if release:
            lines += compare_assertions(read_checkout(options.bridge, "bridge"), release, "bridge")
    sys.stdout.write("".join(f"{line}\n" for line in lines) or "Nothing differs.\n")
    return int(bool(lines))


if __name__ == "__main__":
    raise SystemExit(main())
