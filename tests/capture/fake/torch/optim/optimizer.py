"""The base of optimizers, with the hooks of PyTorch 2."""

import functools

import torch

_post_hooks = []


def register_optimizer_step_post_hook(hook):
    _post_hooks.append(hook)


class Optimizer:
    def __init__(self, parameters=()):
        self.steps = self.zeroed = 0
        kind = type(self)
        if not getattr(kind.step, "hooked", False):
            kind.step = self._hooked(kind.step)

    @staticmethod
    def _hooked(step):
        @functools.wraps(step)
        def wrapper(self, *args, **kwargs):
            result = step(self, *args, **kwargs)
            for hook in _post_hooks:
                hook(self, args, kwargs)
            return result

        wrapper.hooked = True
        return wrapper

    def step(self, closure=None):
        raise NotImplementedError

    def zero_grad(self, set_to_none=True):
        self.zeroed += 1

    def compiled_step(self):
        """A step that torch.compile runs: traced once with the hooks, and without them from then on."""
        torch.compiler.compiles = True
        self.step()
        torch.compiler.compiles = False
