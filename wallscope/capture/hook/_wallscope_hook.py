"""Patches the modules whose calls end a training step, when the program imports them.

Nothing is patched that the program does not import. Standard library alone, Python 3.8 and later.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from types import ModuleType

    from _wallscope_steps import StepCounter

_counter: StepCounter | None = None


def install() -> None:
    """Watch for the modules of `_PATCHES`, and for the step function that the user named.

    With a report for each rank, the process of a rank is replaced by nsys, which runs it again.
    """
    os.close(os.open(os.environ["WALLSCOPE_LOADED"], os.O_CREAT | os.O_WRONLY, 0o600))
    if "RANK" in os.environ and "WALLSCOPE_PER_RANK" in os.environ:
        import _wallscope_ranks

        _wallscope_ranks.replace_process()
    module, _, function = os.environ.get("WALLSCOPE_STEP_FUNCTION", "").rpartition(":")
    if module:
        _PATCHES[module] = lambda loaded: _wrap(loaded, function, 4)
    elif function:
        import _wallscope_functions

        _wallscope_functions.watch(function, lambda: _count().count_return(function, 4))
    sys.meta_path.insert(0, _Finder())


def _count() -> StepCounter:
    """Return the counter of this process, made when it is needed first."""
    global _counter
    if _counter is None:
        from _wallscope_steps import StepCounter

        _counter = StepCounter()
        os.register_at_fork(after_in_child=_forget_steps)
    return _counter


def _forget_steps() -> None:
    """In a forked process: count anew if no step was made before, else nothing, as in a loader's worker."""
    global _counter
    if _counter is not None:
        if _counter.done or _counter.is_mute:
            _counter.is_mute = True
        else:
            _counter = None
            _count()


def _wrap(owner: Any, path: str, precedence: int, ends_step: Callable[..., bool] | None = None) -> None:
    """Count the returns of a function (`Class.method` or `function`) of a module."""
    import functools

    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    original = getattr(owner, name)

    @functools.wraps(original)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _count().claim_steps(path, precedence)
        is_end = ends_step is None or ends_step(*args)
        result = original(*args, **kwargs)
        if is_end:
            _count().count_return(path, precedence)
        return result

    setattr(owner, name, counted)


def _patch_optimizer(module: Any) -> None:
    torch: Any = sys.modules["torch"]
    if not hasattr(module, "register_optimizer_step_post_hook"):
        _patch_old_optimizer(module)
        return
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 3):  # does not say whether it compiles
        module.register_optimizer_step_post_hook(lambda optimizer, *_: _count().count_optimizer(optimizer))
        return

    def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if (
            not torch.compiler.is_compiling()
        ):  # written out: torch.compile folds it, and keeps its graph whole
            _count().count_optimizer(optimizer)

    module.register_optimizer_step_post_hook(stepped)
    original = module.Optimizer.zero_grad

    def zero_grad(self: Any, set_to_none: bool = True) -> Any:
        result = original(self, set_to_none)
        if not torch.compiler.is_compiling() and _count().counts_zero_grad:
            _count().count_zeroing(self)
        return result

    zero_grad.__doc__ = original.__doc__
    zero_grad.__wrapped__ = original  # type: ignore[attr-defined]
    module.Optimizer.zero_grad = zero_grad


def _patch_old_optimizer(module: Any) -> None:
    """PyTorch 1: wrap `step` of each class when its first optimizer is made."""
    import functools

    original = module.Optimizer.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        kind = type(self)
        step = kind.step
        if not getattr(step, "is_counted", False):

            @functools.wraps(step)
            def counted(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                result = step(optimizer, *args, **kwargs)
                _count().count_optimizer(optimizer)
                return result

            counted.is_counted = True  # type: ignore[attr-defined]
            kind.step = counted

    module.Optimizer.__init__ = made


def _patch_scaler(module: Any) -> None:
    kind = module.GradScaler
    if "step" not in vars(kind):
        return  # it inherits the one that is patched
    original = kind.step

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        count = _count()
        calls = count.calls
        result = original(self, optimizer, *args, **kwargs)
        if count.calls == calls:
            count.count_left_out(optimizer)
        return result

    step.__doc__ = original.__doc__
    kind.step = step


def _patch_deepspeed(module: Any) -> None:
    _wrap(
        module, "DeepSpeedEngine.step", 3, lambda engine, *_: bool(engine.is_gradient_accumulation_boundary())
    )


_PATCHES: dict[str, Callable[[Any], None]] = {
    "torch.optim.optimizer": _patch_optimizer,
    "torch.amp.grad_scaler": _patch_scaler,
    "torch.cuda.amp.grad_scaler": _patch_scaler,
    "megatron.training.training": lambda module: _wrap(module, "train_step", 3),
    "megatron.bridge.training.train": lambda module: _wrap(module, "train_step", 3),
    "megatron.bridge.training.train_megatron_mimo": lambda module: _wrap(
        module, "train_step_megatron_mimo", 3
    ),
    "deepspeed.runtime.engine": _patch_deepspeed,
    "deepspeed.runtime.pipe.engine": lambda module: _wrap(module, "PipelineEngine.train_batch", 3),
}


class _Finder:
    """Lets the other finders find a module of `_PATCHES`, and patches it once it is executed."""

    def __init__(self) -> None:
        self._sought: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the other finders have for a module to patch; `None` for all others."""
        if name not in _PATCHES or name in self._sought:
            return None
        self._sought.add(name)
        try:
            specs = (one.find_spec(name, path, target) for one in sys.meta_path if one is not self)
            spec = next((one for one in specs if one is not None), None)
        finally:
            self._sought.discard(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                _PATCHES[name](module)
            except Exception as error:
                sys.stderr.write(f"wallscope: the steps of {name} cannot be counted: {error!r}\n")

        try:
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        except AttributeError:
            return None
        return spec
