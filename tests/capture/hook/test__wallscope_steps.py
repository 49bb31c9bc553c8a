"""Steps are counted exactly, whatever ends them, and the program notices nothing."""

import os
import subprocess
import sys

import pytest

from tests.capture.conftest import FAKE, LOOP
from tests.conftest import ROOT

HOOK = ROOT / "wallscope/capture/hook"


def loop(steps: int = 30, pause: float = 0) -> str:
    return LOOP.format(steps=steps, pause=pause)


PROGRAMS = {
    "plain": (loop(), "optimizer", 21),
    "accumulated": (
        """
        import torch
        optimizer = torch.optim.SGD()
        for batch in range(120):
            if batch % 4 == 3: optimizer.step(); optimizer.zero_grad()
        """,
        "optimizer",
        21,
    ),
    "two that step together": (
        """
        import torch
        first, second = torch.optim.Adam(), torch.optim.SGD()
        for step in range(30): first.step(); second.step()
        """,
        "optimizer",
        21,
    ),
    "five for one": (
        """
        import torch
        generator, discriminator = torch.optim.Adam(), torch.optim.SGD()
        for step in range(30):
            for _ in range(5): discriminator.step()
            generator.step()
        """,
        "optimizer",
        21,
    ),
    "one that stops": (
        """
        import torch
        probe, optimizer = torch.optim.SGD(), torch.optim.AdamW()
        probe.step(); probe.step()
        for step in range(200): optimizer.step()
        """,
        "optimizer",
        None,
    ),
    "compiled": (
        """
        import torch
        optimizer = torch.optim.AdamW()
        optimizer.compiled_step()
        for step in range(30): optimizer.zero_grad()
        """,
        "zero_grad",
        21,
    ),
    "own class": (
        """
        import torch
        class Own(torch.optim.Optimizer if hasattr(torch.optim, "Optimizer") else object):
            def step(self, closure=None): return 7
        optimizer = Own()
        for step in range(30): assert optimizer.step() == 7
        """,
        "optimizer",
        21,
    ),
    "recorded into a graph": (
        """
        import torch
        optimizer = torch.optim.SGD()
        torch.cuda.is_initialized = lambda: True
        torch.cuda.capturing = True
        for _ in range(50): optimizer.step()
        torch.cuda.capturing = False
        torch.cuda.is_initialized = lambda: False
        for step in range(30): optimizer.step()
        """,
        "optimizer",
        21,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_counted_exactly(hooked, name):
    text, source, steps = PROGRAMS[name]
    found = hooked(text)

    assert found.code == 0
    record = found.record
    assert record["source"] == source
    assert record["captured_steps"] == 5
    assert record["phase"] == "over"
    assert record["errors"] == []
    if steps is not None:
        assert record["steps"] == steps == 10 + 2 + 5 + 1 + 3
        assert [len(record[part]) for part in ("before_ns", "during_ns", "after_ns")] == [5, 5, 3]


def test_a_stopped_optimizer_is_named(hooked):
    assert hooked(PROGRAMS["one that stops"][0]).record["notes"] == [
        "the optimizer SGD stopped after 2 steps"
    ]


def test_of_several_optimizers_the_rarest_ends_the_step(hooked):
    record = hooked(PROGRAMS["five for one"][0]).record

    assert [(one["class"], one["ends_step"]) for one in record["optimizers"]] == [
        ("SGD", False),
        ("Adam", True),
    ]


def test_a_step_that_the_scaler_leaves_out_is_a_step(hooked):
    record = hooked(
        """
        import torch
        optimizer, scaler = torch.optim.SGD(), torch.amp.GradScaler()
        for step in range(30):
            scaler.is_finite = step not in (0, 1, 12)
            scaler.step(optimizer)
        assert optimizer.steps == 27
        """,
    ).record

    assert (record["steps"], record["skipped"]) == (21, [0, 1, 12])


MEGATRON = """
def train_step(forward_step_func, data_iterator, model, optimizer, opt_param_scheduler, config,
               forward_backward_func, iteration=None, pg_collection=None, p2p_communicator=None):
    for _ in range(2):  # microbatches
        forward_step_func(data_iterator, model)
    if iteration % 7 == 3:  # a step that must be run again
        return {}, True, False, False, 0, None, None, 0
    optimizer.step()
    optimizer.step()
    return {"loss": 1}, 0, False, False, 0, 1.0, None, 0

def dummy_train_step(data_iterator):
    next(data_iterator)

def train(forward_step_func, model, optimizer, opt_param_scheduler, train_data_iterator, steps):
    for iteration in range(steps):
        if iteration == 5:
            dummy_train_step(train_data_iterator)
        loss, skipped, checkpoint, leave, code, norm, zeros, logit = train_step(
            forward_step_func, train_data_iterator, model, optimizer, opt_param_scheduler, None, None,
            iteration=iteration, pg_collection=None, p2p_communicator=None,
        )
    return iteration + 1
"""
"""The step of Megatron-LM and its call: by the name in its own module."""
BRIDGE = """
import functools
from nvrx import wrap_step

def nvtx_decorator():
    def decorate(function):
        @functools.wraps(function)
        def ranged(*arguments, **named):
            return function(*arguments, **named)
        return ranged
    return decorate

@nvtx_decorator()
def train_step(forward_step_func, data_iterator, model, optimizer, scheduler, global_state, pg_collection,
               forward_backward_func, p2p_communicator):
    forward_step_func(data_iterator, model)
    optimizer.step()
    optimizer.step()
    return {{"loss": 1}}, 0, False, False, 0, 1.0, None, None

def train(forward_step_func, model, optimizer, scheduler, train_data_iterator, steps):
    wrapped_train_step = train_step
    if {is_watched}:
        wrapped_train_step = wrap_step(train_step)
    for iteration in range(steps):
        loss, *_ = wrapped_train_step(
            forward_step_func, train_data_iterator, model, optimizer, scheduler, None, None, None, None
        )
    return iteration + 1
"""
"""The step of Megatron Bridge and its call: by a local name, which may be that of a wrapper."""
NVRX = """
class Wrapper:
    def __init__(self, function): self.train_step = function
    def __call__(self, *arguments, **named): return self.train_step(*arguments, **named)

def wrap_step(function):
    found = Wrapper(function)
    inner = found.train_step
    found.train_step = lambda *arguments, **named: inner(*arguments, **named)
    return found
"""
"""As the detector of stragglers wraps a step: by a method of an object, replaced in place."""
MIMO = """
def train_step_megatron_mimo(forward_step_func, data_iterator, model, optimizer, schedulers, global_state,
                             multimodule_communicator, multimodule_pg_collection, infra, module_to_grid_tuple,
                             num_microbatches, seq_length, micro_batch_size):
    optimizer.step()
    optimizer.step()
    return {}, 0, None, None

def train(forward_step_func, model, optimizer, scheduler, train_data_iterator, steps):
    for iteration in range(steps):
        train_step_megatron_mimo(
            forward_step_func=forward_step_func, data_iterator=train_data_iterator, model=model,
            optimizer=optimizer, schedulers={}, global_state=None, multimodule_communicator=None,
            multimodule_pg_collection=None, infra=None, module_to_grid_tuple=[], num_microbatches=1,
            seq_length=1, micro_batch_size=1,
        )
    return iteration + 1
"""
TRAINERS = {
    "Megatron-LM": ("megatron/training/training.py", MEGATRON, "train_step"),
    "Megatron Bridge": ("megatron/bridge/training/train.py", BRIDGE.format(is_watched=False), "train_step"),
    "Bridge, with a wrapper": (
        *("megatron/bridge/training/train.py", BRIDGE.format(is_watched=True)),
        "train_step",
    ),
    "Bridge, several modalities": (
        *("megatron/bridge/training/train_megatron_mimo.py", MIMO),
        "train_step_megatron_mimo",
    ),
}


def install_trainer(folder, name: str) -> tuple[str, str]:
    """Write a framework next to the program; return its module and the function that runs one step."""
    place, text, source = TRAINERS[name]
    (folder / "nvrx.py").write_text(NVRX)
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_text(text)
    return place.removesuffix(".py").replace("/", "."), source


@pytest.mark.parametrize("name", TRAINERS)
def test_the_step_of_a_framework_comes_before_its_optimizers(hooked, tmp_path, name):
    module, source = install_trainer(tmp_path, name)
    found = hooked(
        f"""
        import torch
        from {module} import train
        print(train(lambda *_: None, object(), torch.optim.SGD(), object(), iter(range(99)), 30))
        """,
    )

    assert found.out == b"30\n", found.err
    assert (found.record["source"], found.record["steps"]) == (source, 21)


@pytest.mark.parametrize(
    "load",
    [
        "from {module} import train_step",
        "import {module}; train_step = {module}.train_step",
        "import importlib; train_step = importlib.import_module('{module}').train_step",
    ],
)
def test_a_loop_of_its_own_calls_the_step_by_any_name(hooked, tmp_path, load):
    module, source = install_trainer(tmp_path, "Megatron Bridge")
    record = hooked(
        f"""
        import torch
        {load.format(module=module)}
        own, optimizer = train_step, torch.optim.SGD()
        for step in range(30): own(lambda *_: None, None, None, optimizer, None, None, None, None, None)
        """,
    ).record

    assert (record["source"], record["steps"]) == (source, 21)


def test_deepspeed_steps_at_the_end_of_an_accumulation(hooked, tmp_path):
    path = tmp_path / "deepspeed/runtime/engine.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "class DeepSpeedEngine:\n"
        "    def __init__(self, optimizer): self.optimizer, self.count = optimizer, 0\n"
        "    def is_gradient_accumulation_boundary(self): return (self.count + 1) % 4 == 0\n"
        "    def step(self):\n"
        "        for _ in range(3): self.optimizer.step()\n"
        "        self.count += 1\n"
    )
    record = hooked(
        """
        import torch
        from deepspeed.runtime.engine import DeepSpeedEngine
        engine = DeepSpeedEngine(torch.optim.SGD())
        for step in range(120): engine.step()
        """,
    ).record

    assert (record["source"], record["steps"]) == ("DeepSpeedEngine.step", 21)


def test_a_step_function_is_named_with_its_module(hooked, tmp_path):
    (tmp_path / "trainer.py").write_text("class Trainer:\n    def run(self): return 1\n")
    record = hooked(
        """
        import torch, trainer
        own = trainer.Trainer()
        for step in range(30): own.run()
        """,
        step_function="trainer:Trainer.run",
    ).record

    assert (record["source"], record["steps"]) == ("Trainer.run", 21)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_a_step_function_of_the_program_itself_is_named_alone(hooked):
    record = hooked(
        """
        import torch
        def update(): return 1
        for step in range(30): update()
        """,
        step_function="update",
    ).record

    assert (record["source"], record["steps"]) == ("update", 21)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 can watch functions")
def test_an_old_python_says_what_it_needs(hooked):
    found = hooked(loop(), step_function="update")

    assert (
        "without its module, a step function needs Python 3.12: --step-function MODULE:update" in found.said
    )


def test_workers_of_a_loader_do_not_count(hooked):
    found = hooked(
        """
        import os, torch
        optimizer = torch.optim.SGD()
        for step in range(30):
            optimizer.step()
            child = os.fork()
            if not child:
                for _ in range(100): torch.optim.SGD().step()
                os._exit(0)
            os.waitpid(child, 0)
        """,
    )

    assert found.record["steps"] == 21


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_train_count_each(hooked, method):
    found = hooked(
        f"""
        import multiprocessing, os
        import torch
        def train(rank):
            os.environ["RANK"] = str(rank)
            optimizer = torch.optim.SGD()
            for step in range(14): optimizer.step()
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            workers = [context.Process(target=train, args=(rank,)) for rank in range(2)]
            for one in workers: one.start()
            for one in workers: one.join()
        """,
    )

    assert [(one["rank"], one["steps"], one["is_early"]) for one in found.records] == [
        (0, 14, True),
        (1, 14, True),
    ]
    assert [one["captured_steps"] for one in found.records] == [2, 2]


def test_the_sitecustomize_of_the_user_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join((str(HOOK), str(tmp_path)))
    ran = subprocess.run(
        [sys.executable, "-c", "print('program')"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (ran.stdout, ran.stderr) == ("mine\nprogram\n", "")


def test_an_error_of_the_hook_is_one_line_and_the_program_goes_on():
    ran = subprocess.run(
        [sys.executable, "-c", "print('program')"],
        env={**os.environ, "PYTHONPATH": str(HOOK), "WALLSCOPE_CAPTURE": "{}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout == "program\n"
    assert ran.stderr.startswith("wallscope: the hook that counts steps did not start: KeyError")
    assert ran.stderr.count("\n") == 1


def test_the_hook_loads_nothing_that_a_python_has_not_loaded_anyway(tmp_path):
    shown = "import sys; print(sorted(sys.modules))"
    bare, hooked = (
        set(
            eval(  # a list of names
                subprocess.run(
                    [sys.executable, "-c", shown],
                    env={**os.environ, **more},
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
        )
        for more in (
            {},
            {
                "PYTHONPATH": str(HOOK),
                "WALLSCOPE_CAPTURE": "{}",
                "WALLSCOPE_LOADED": str(tmp_path / "loaded"),
            },
        )
    )

    assert not {"json", "threading", "subprocess", "inspect", "torch"} & (hooked - bare)
    assert (tmp_path / "loaded").exists()


def test_the_path_of_the_fake_is_not_that_of_a_real_one():
    assert (FAKE / "torch/__init__.py").is_file()
