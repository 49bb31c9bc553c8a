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


TRAINERS = {
    "megatron/training/training.py": (
        "def train_step(optimizer):\n    optimizer.step()\n    return 3\n",
        "train_step",
    ),
    "megatron/bridge/training/train.py": (
        "def train_step(optimizer):\n    optimizer.step(); optimizer.step()\n    return 3\n",
        "train_step",
    ),
}


@pytest.mark.parametrize("place", TRAINERS)
def test_the_step_of_a_framework_comes_before_its_optimizers(hooked, tmp_path, place):
    text, source = TRAINERS[place]
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    module = place.removesuffix(".py").replace("/", ".")
    record = hooked(
        f"""
        import torch
        from {module} import train_step
        optimizer = torch.optim.SGD()
        for step in range(30): assert train_step(optimizer) == 3
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
