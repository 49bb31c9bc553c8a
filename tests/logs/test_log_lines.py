"""Logs with any digits, lines and bytes: times and figures that can be, or one line about the file."""

import math
import time
import tracemalloc
from dataclasses import astuple

import pytest

from wallscope.errors import OptionError
from wallscope.logs import log_lines
from wallscope.logs.formats import list_log_formats
from wallscope.logs.log_lines import read_log
from wallscope.logs.step_times import read_logged_steps

NUMBERS = (
    "1e999",
    "1e308",
    "1e-320",
    "1e-99",
    "9" * 21,
    "0",
    "0." + "123456789" * 4,
    "9" * 4_000,
    "1,,2",
    "nan",
)
LINES = {
    "megatron-lm": "iteration {i}/ 9 | elapsed time per iteration (ms): {x} | throughput per GPU"
    " (TFLOP/s/GPU): {x} | loss scale: {x} | number of skipped iterations: {x} | global batch size: {x} |",
    "megatron-bridge": "Step Time : {x} s GPU utilization: {x} MODEL_TFLOP/s/GPU, {x} tok/s/gpu",
    "nemo": "Training epoch 0, iteration {i}/9 | train_step_timing in s: {x} | TFLOPS_per_GPU: {x} |",
    "torchtitan": "{year:04}-12-31 99:59:59,999999999 step: {i}  tps: {x}  tflops: {x}  mfu: {x}%",
    "deepspeed-pipeline": "steps: {i} loss: 1 iter time (s): {x} samples/sec: {x}",
    "deepspeed": "step={i}, skipped={x}, train_batch_size ... {x}\n"
    "epoch=0/micro_step={i}/global_step={i}, CurrSamplesPerSec={x}, \nreducing to {x} OVERFLOW Skipping step",
    "hugging-face": "{{'train_runtime': {x}, 'train_steps_per_second': {x}, 'train_tokens_per_second': {x}}}",
    "lightning": "Epoch 0: {i}%|# | {i}/99 [{i}{x}:00:00<00:01, v_num=0]",
    "progress-bar": "{i}%|# | {i}/99 [{i}{x}:00<00:01]",
    "plain": "step {i} step time: {x} s {x} it/s elapsed {x} s {x} tok/s loss scale {x} mfu {x}%",
}


def test_each_format_is_attacked():
    assert set(LINES) == {one.id for one in list_log_formats()}


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: f"{text[:6]}-{len(text)}")
@pytest.mark.parametrize("at", [None, 7])
def test_any_digits_give_times_and_figures_that_can_be(kind, number, at, tmp_path):
    path = tmp_path / "run.log"
    path.write_text(
        "\n".join(
            LINES[kind].format(i=i, x=number if at in {None, i} else "1.5", year=1 + 900 * i % 9_999)
            for i in range(1, 30)
        )
    )

    try:
        found = read_logged_steps([path])
    except OptionError as error:
        assert "states no time of a step" in str(error)  # noqa: PT017  # either answer is right
        return
    values = [one for one in astuple(found) if isinstance(one, int | float)]
    assert all(math.isfinite(one) and 0 <= one < 2**63 * 1e12 for one in values)
    assert found.step_ns is None or 0 < found.step_ns < 2**53


@pytest.mark.parametrize("digits", ["0.1234567890123456789012345", "1234567890123456789012345", "1.5e1234"])
def test_a_number_that_is_too_long_is_not_read_from_its_middle(digits, tmp_path):
    path = tmp_path / "run.log"
    path.write_text("\n".join(f"step {i} step time: {digits} s" for i in range(30)))

    with pytest.raises(OptionError, match="states no time"):
        read_logged_steps([path])


@pytest.mark.parametrize("fill", ["1,", "1", "1 ", "1 ms ", "1.", "1e1", "time\t\t\t"])
def test_lines_of_numbers_take_time_in_proportion(fill, tmp_path):
    path = tmp_path / "run.log"
    path.write_text(("step 1 " + (fill * 4_096)[:4_000] + "\n") * 250)

    begin = time.process_time()
    with pytest.raises(OptionError):
        read_logged_steps([path])
    assert time.process_time() - begin < 5


def test_short_lines_take_no_memory_besides_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(log_lines, "MOST_LOG_BYTES", 80_000)
    path = tmp_path / "run.log"
    path.write_text("añ\n" * 20_000, encoding="utf-8")

    tracemalloc.start()
    read_log(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * path.stat().st_size


def test_too_many_reports_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(log_lines, "MOST_LOG_REPORTS_COUNT", 100)
    path = tmp_path / "run.log"
    path.write_text("step 1 step 2\n" * 51)

    with pytest.raises(OptionError, match="has more than 100 reports of steps — give the part with the last"):
        read_log(path)


def test_a_line_may_be_as_long_as_the_file(tmp_path):
    path = tmp_path / "run.log"
    good = "".join(f"step {i} step time: 0.5 s\r" for i in range(20))
    path.write_text(
        good + "x" * 3_000_000 + "é" * 10_000 + "\n" + good.replace("step ", "step 1", 1), encoding="utf-8"
    )

    assert read_logged_steps([path]).step_ns == 500_000_000
