"""Logs as frameworks write them: each line by a format string of our own, after that of the framework."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

MS = 1_000_000
START = datetime(2025, 3, 1, 23, 59, 30, tzinfo=UTC)  # midnight passes


def write_megatron(times_ms: Sequence[float], *, interval: int = 1, bridge: bool = False) -> list[str]:
    lines = []
    for place, time_ms in enumerate(times_ms, start=1):
        if bridge:
            lines.append(f"Step Time : {time_ms / 1000:.2f}s GPU utilization: 412.3MODEL_TFLOP/s/GPU")
        throughput = "" if bridge else " throughput per GPU (TFLOP/s/GPU): 412.3 |"
        lines.append(
            f" [{START:%Y-%m-%d %H:%M:%S}] iteration {place * interval:8d}/{1000:8d} | consumed samples:"
            f" {place * 256:12d} | elapsed time per iteration (ms): {time_ms:.1f} |{throughput}"
            f" learning rate: {3e-4:.6E} | global batch size: {256:5d} | lm loss: {2.5:.6E} |"
            f" loss scale: 65536.0 | grad norm: 0.812 |"
            f" number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |"
        )
    return lines


def write_nemo(times_ms: Sequence[float]) -> list[str]:
    return [
        f"Training epoch 0, iteration {place}/999 | lr: 9.8e-08 | global_batch_size: 256 |"
        f" global_step: {place} | reduced_train_loss: 14.66 | train_step_timing in s: {time_ms / 1000:.4g} |"
        f" tokens_per_sec_per_gpu: 1.073e+04 | consumed_samples: {place * 256}"
        for place, time_ms in enumerate(times_ms)
    ]


def write_bar(times_ms: Sequence[float], before: str = "", after: str = "") -> list[str]:
    lines, passed_ms = [], 0.0
    for place, time_ms in enumerate(times_ms, start=1):
        passed_ms += time_ms
        minutes, seconds = divmod(int(passed_ms / 1000), 60)
        done = place * 100 // len(times_ms)
        lines.append(
            f"{before}{done:3d}%|{'█' * (done // 10):10s}| {place}/{len(times_ms)}"
            f" [{minutes:02d}:{seconds:02d}<01:00,  2.50it/s{after}]"
        )
    return lines


def write_lightning(times_ms: Sequence[float]) -> list[str]:
    return write_bar(times_ms, "Epoch 0: ", ", v_num=0, train_loss=1.230")


def write_hugging_face(times_ms: Sequence[float]) -> list[str]:
    lines = [
        part
        for place, line in enumerate(write_bar(times_ms))
        for part in (
            line,
            *(["{'loss': 1.23, 'learning_rate': 1e-05, 'epoch': 0.1}"] if place % 10 == 0 else []),
        )
    ]
    return [*lines, "{'train_runtime': 99.1, 'train_steps_per_second': 1.5, 'train_loss': 1.1, 'epoch': 1.0}"]


def _list_moments(times_ms: Sequence[float]) -> list[datetime]:
    moments, at = [], START
    for time_ms in times_ms:
        at += timedelta(milliseconds=time_ms)
        moments.append(at)
    return moments


def write_torchtitan(times_ms: Sequence[float], interval: int = 5) -> list[str]:
    return [
        f"[titan] {at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} - root - INFO -"
        f" \x1b[31mstep: {place:2}  \x1b[32mloss:  4.1234  \x1b[33mmemory: 40.12GiB(50.12%)  "
        "\x1b[34mtps: 7,123  \x1b[36mtflops: 412.32  \x1b[35mmfu: 41.69%\x1b[39m"
        for place, at in enumerate(_list_moments(times_ms), start=1)
        if place == 1 or place % interval == 0
    ]


def write_deepspeed(times_ms: Sequence[float]) -> list[str]:
    lines = ["  train_batch_size ............. 256"]
    for place, (at, time_ms) in enumerate(zip(_list_moments(times_ms), times_ms, strict=True), start=1):
        before = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}] [INFO]"
        lines.append(
            f"{before} [logging.py:96:log_dist] [Rank 0] step={place}, skipped=3, lr=[0.0001], mom=[0.9]"
        )
        lines.append(
            f"{before} [timer.py:260:stop] epoch=0/micro_step={place}/global_step={place},"
            f" RunningAvgSamplesPerSec=600.0, CurrSamplesPerSec={256_000 / time_ms}, MemAllocated=6.0GB,"
            " MaxMemAllocated=19.5GB"
        )
    return lines


def write_deepspeed_pipeline(times_ms: Sequence[float]) -> list[str]:
    return [
        f"steps: {place} loss: 1.2345 iter time (s): {time_ms / 1000:0.3f} samples/sec: 640.0"
        for place, time_ms in enumerate(times_ms, start=1)
    ]


def write_plain(times_ms: Sequence[float]) -> list[str]:
    return [
        f"iter {place}: loss 3.1234, time {time_ms:.2f}ms, mfu 41.69%"
        for place, time_ms in enumerate(times_ms)
    ]


def write_plain_total(times_ms: Sequence[float]) -> list[str]:
    passed_ms = [sum(times_ms[: place + 1]) for place in range(len(times_ms))]
    return [f"step:{place}/1000 loss:3.1 train_time:{at:.0f}ms" for place, at in enumerate(passed_ms)]


def write_plain_moments(times_ms: Sequence[float]) -> list[str]:
    return [
        f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} step {place} loss 3.1"
        for place, at in enumerate(_list_moments(times_ms))
    ]


Writer = Callable[[Sequence[float]], list[str]]
WRITERS: dict[str, tuple[Writer, tuple[str, ...], str]] = {
    "megatron-lm": (write_megatron, ("Megatron-LM",), "stated"),
    "megatron-bridge": (lambda times: write_megatron(times, bridge=True), ("Megatron Bridge",), "stated"),
    "nemo": (write_nemo, ("NeMo",), "stated"),
    "lightning": (write_lightning, ("Lightning",), "clock"),
    "hugging-face": (write_hugging_face, ("Hugging Face Trainer",), "clock"),
    "torchtitan": (write_torchtitan, ("torchtitan",), "clock"),
    "deepspeed": (write_deepspeed, ("DeepSpeed",), "throughput"),
    "deepspeed-pipeline": (write_deepspeed_pipeline, ("DeepSpeed",), "stated"),
    "plain": (write_plain, ("plain lines",), "stated"),
    "plain-total": (write_plain_total, ("plain lines",), "clock"),
    "plain-moments": (write_plain_moments, ("plain lines",), "clock"),
}
"""How a framework writes steps of these times, the formats that are recognized, and its basis."""
