"""A real PyTorch does what the fake one of the other tests does: steps are counted exactly, frameworks too.

`make contract` runs these tests; `WALLSCOPE_TORCH_PYTHON` names a Python that has PyTorch.
"""

import gzip
import json
import os
import subprocess

import pytest

from tests.capture.conftest import Captured, command
from tests.conftest import ROOT

PYTHON = os.environ.get("WALLSCOPE_TORCH_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="WALLSCOPE_TORCH_PYTHON names no Python with PyTorch")

MODEL = """
import sys, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
def run(): model(torch.randn(32, 64)).sum().backward()
"""
PROGRAMS = {
    "plain": (
        MODEL + "for _ in range(30): run(); optimizer.step(); optimizer.zero_grad()",
        "optimizer",
        1,
        1,
    ),
    "accumulated": (
        MODEL
        + "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)\n"
        + "for batch in range(120):\n    run()\n"
        + "    if batch % 4 == 3: optimizer.step(); scheduler.step(); optimizer.zero_grad()",
        *("optimizer", 1, 4),
    ),
    "five for one": (
        MODEL
        + "other = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        + "for _ in range(30):\n    for _ in range(5): run(); other.step()\n    run(); optimizer.step()",
        *("optimizer", 6, 6),
    ),
    "closure": (
        MODEL
        + "optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)\n"
        + "def closure():\n    loss = model(torch.ones(2, 64)).square().sum(); loss.backward(); return loss\n"
        + "for _ in range(30): optimizer.step(closure)",
        *("optimizer", 1, 1),
    ),
    "compiled model": (
        MODEL
        + "model = torch.compile(model, backend='eager')\n"
        + "for _ in range(30): run(); optimizer.step(); optimizer.zero_grad()",
        *("optimizer", 1, 1),
    ),
    "compiled optimizer": (
        MODEL
        + "update = torch.compile(lambda: optimizer.step(), backend='eager')\n"
        + "for _ in range(30): run(); update(); optimizer.zero_grad()",
        *("zero_grad", None, 1),
    ),
    "Accelerate": (
        (
            "import torch\nfrom accelerate import Accelerator\n"
            "one = Accelerator(cpu=True, gradient_accumulation_steps=2)\n"
            "model = torch.nn.Linear(8, 1); optimizer = torch.optim.Adam(model.parameters())\n"
            "data = torch.utils.data.DataLoader(torch.randn(240, 8), batch_size=4)\n"
            "model, optimizer, data = one.prepare(model, optimizer, data)\n"
            "for batch in data:\n    with one.accumulate(model):\n"
            "        one.backward(model(batch).sum()); optimizer.step(); optimizer.zero_grad()"
        ),
        *("optimizer", 1, 2),
    ),
    "Lightning": (
        (
            "import torch, pytorch_lightning as lightning\n"
            "class Model(lightning.LightningModule):\n"
            "    def __init__(self): super().__init__(); self.layer = torch.nn.Linear(8, 1)\n"
            "    def training_step(self, batch, _): return self.layer(batch[0]).sum()\n"
            "    def configure_optimizers(self): return torch.optim.Adam(self.parameters())\n"
            "data = torch.utils.data.TensorDataset(torch.randn(160, 8))\n"
            "lightning.Trainer(max_steps=30, accelerator='cpu', logger=False, enable_checkpointing=False,\n"
            "    enable_progress_bar=False).fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))"
        ),
        *("optimizer", 1, 1),
    ),
    "Trainer of Hugging Face": (
        (
            "import torch, transformers\n"
            "class Model(torch.nn.Module):\n"
            "    def __init__(self): super().__init__(); self.layer = torch.nn.Linear(8, 1)\n"
            "    def forward(self, x): return {'loss': self.layer(x).sum()}\n"
            "chosen = transformers.TrainingArguments('trained', max_steps=30, use_cpu=True, report_to=[],\n"
            "    per_device_train_batch_size=4, gradient_accumulation_steps=2, save_strategy='no',\n"
            "    logging_strategy='no', disable_tqdm=True)\n"
            "data = [{'x': torch.randn(8)} for _ in range(240)]\n"
            "transformers.Trainer(Model(), chosen, train_dataset=data).train()"
        ),
        *("optimizer", 1, 2),
    ),
    "DeepSpeed": (
        (
            "import os, torch\n"
            "os.environ |= {'DS_ACCELERATOR': 'cpu', 'RANK': '0', 'WORLD_SIZE': '1', 'LOCAL_RANK': '0'}\n"
            "os.environ |= {'MASTER_ADDR': 'localhost', 'MASTER_PORT': '0'}\n"
            "import deepspeed, deepspeed.comm.torch\n"
            "deepspeed.comm.torch.build_shm_op = lambda: None  # compiles for minutes\n"
            "model = torch.nn.Linear(8, 1); optimizer = torch.optim.AdamW(model.parameters())\n"
            "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={\n"
            "    'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': 4})\n"
            "for _ in range(120): engine.backward(engine(torch.randn(4, 8)).sum()); engine.step()\n"
            "assert engine.global_steps == 30\n"
        ),
        *("DeepSpeedEngine.step", 1, 4),
    ),
}
MODULES = {
    "Accelerate": "accelerate",
    "DeepSpeed": "deepspeed",
    "Lightning": "pytorch_lightning",
    "Trainer of Hugging Face": "transformers",
}
RANKS = """
import torch, torch.distributed as distributed
distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(30): model(torch.randn(32, 64)).sum().backward(); optimizer.step(); optimizer.zero_grad()
distributed.destroy_process_group()
"""


@pytest.fixture
def capture(tmp_path, write):
    """Capture a program with the real profiler of PyTorch."""

    def run(text: str, *launcher: str) -> Captured:
        folder = tmp_path / "captured"
        ran = subprocess.run(
            [*command(folder, "--profiler", "torch"), "--", PYTHON, *launcher, write(text)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=600,
        )
        return Captured(ran.returncode, ran.stdout, ran.stderr.decode(), folder)

    return run


def count_in_steps(found: Captured, rank: int, name: str) -> list[int]:
    """How many events of a name begin in each step of a trace."""
    with gzip.open(found.folder / f"rank-{rank}.json.gz") as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
    steps = sorted(
        (one["ts"], one["ts"] + one["dur"]) for one in events if one["name"].startswith("ProfilerStep#")
    )
    begun = [one["ts"] for one in events if one["name"].startswith(name)]
    return [sum(start <= at < end for at in begun) for start, end in steps]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_captured_step_has_its_optimizer_steps_and_its_forward_passes(capture, name):
    text, source, updates, passes = PROGRAMS[name]
    module = MODULES.get(name)
    if (
        module
        and subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"{PYTHON} has no {module}")
    found = capture(text)

    assert found.code == 0, found.err
    assert found.record["errors"] == []
    assert (found.record["source"], found.record["captured_steps"]) == (source, 5)
    assert count_in_steps(found, 0, "aten::linear") == [passes] * 5
    if updates is not None:
        assert count_in_steps(found, 0, "Optimizer.step") == [updates] * 5


def test_a_step_that_the_scaler_leaves_out_has_no_optimizer_step(capture):
    found = capture(
        MODEL
        + "scaler = torch.amp.GradScaler('cpu')\n"
        + "for step in range(30):\n"
        + "    loss = model(torch.randn(4, 64)).sum() * (float('inf') if step in (0, 1, 12) else 1)\n"
        + "    scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()"
    )

    assert found.record["skipped"] == [0, 1, 12]
    assert count_in_steps(found, 0, "Optimizer.step") == [0, 1, 1, 1, 1]


def test_two_ranks_have_a_trace_each(capture):
    found = capture(RANKS, "-m", "torch.distributed.run", "--nproc-per-node", "2")

    assert found.code == 0, found.err
    assert [(one["rank"], one["captured_steps"]) for one in found.records] == [(0, 5), (1, 5)]
    assert [one["parallel"]["world"] for one in found.records] == [2, 2]
    for rank in range(2):
        assert count_in_steps(found, rank, "Optimizer.step") == [1] * 5
