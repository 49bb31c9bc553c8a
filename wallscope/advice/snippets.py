"""Lines of settings as a user pastes them: values of the run for placeholders, and which are sketches."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from wallscope.model.advice import RunConfiguration, Setting, System

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


def _halve(value: int) -> int | None:
    return value // 2 if value > 1 and value % 2 == 0 else None


_KNOWN: Final[Mapping[tuple[str, str], tuple[str, _Fill]]] = {
    ("micro_batch_size", "<twice as large>"): ("micro_batch_size", lambda value: 2 * value),
    ("tensor_model_parallel_size", "<half>"): ("tensor_model_parallel_size", _halve),
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
    source, fill = _KNOWN.get((name, setting.value), ("", _halve))
    if limited := _AT_MOST.fullmatch(setting.value):
        source, fill = "expert_model_parallel_size", lambda value: min(value, int(limited[1]))
    known = run.get(source) if source else None
    if not isinstance(known, int) or isinstance(known, bool) or known < 1:
        return setting
    value = fill(known)
    return setting if value is None else replace(setting, value=str(value))


def is_sketch(setting: Setting) -> bool:
    """Return whether a line must be completed or adapted before it runs.

    Flags, keys of a configuration and variables of the environment run as written. Code does if it needs
    nothing but a library; what uses variables of a program does not.

    >>> is_sketch(Setting("pytorch", "torch.backends.cudnn.benchmark = True", ""))
    False
    >>> is_sketch(Setting("pytorch", "pool.submit(prepare, i + 1)", ""))
    True
    >>> is_sketch(Setting("environment", "NVLINK_DOMAIN_SIZE", "72"))
    False
    """
    code = setting.write().partition("  # ")[0].strip()
    if _PLACEHOLDER.search(code):
        return True
    if setting.system in _AS_WRITTEN or _OPTION.fullmatch(code):
        return False
    return setting.system not in _PYTHON or not _needs_only_libraries(code)


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
