"""A profiler of the interface of PyTorch's, which writes one kernel for each step."""

import enum
import gzip
import json
import os
import time


class ProfilerActivity(enum.Enum):
    CPU = 0
    CUDA = 1


def schedule(*, wait, warmup, active, repeat):
    assert (wait, repeat) == (0, 1)
    return warmup, active


class profile:  # noqa: N801  # PyTorch's
    def __init__(self, *, activities, schedule, on_trace_ready, record_shapes):
        self.warmup, self.active = schedule
        self.ready = on_trace_ready
        self.ends_us = []

    def start(self):
        self.ends_us.append(time.time() * 1e6)

    def step(self):
        self.ends_us.append(time.time() * 1e6)

    def stop(self):
        self.ends_us.append(time.time() * 1e6)
        self.ready(self)

    def export_chrome_trace(self, path):
        pid, events = os.getpid(), []
        steps = list(enumerate(zip(self.ends_us, self.ends_us[1:])))
        for number, (start, end) in steps[self.warmup : self.warmup + self.active]:
            part = (end - start) / 8
            call = {"cbid": 211, "correlation": number}
            kernel = {**call, "device": 0, "stream": 7, "grid": [132, 1, 1], "block": [256, 1, 1]}
            for category, name, at, length, tid, args in (
                ("user_annotation", f"ProfilerStep#{number}", 0, 8, 1, {}),
                ("cuda_runtime", "cudaLaunchKernel", 1, 0.5, 1, call),
                ("kernel", "nvjet_tst_128x128", 2, 5, 7, kernel),
                (
                    "cuda_runtime",
                    "cudaStreamSynchronize",
                    2,
                    5.5,
                    1,
                    {"cbid": 131, "correlation": 9_000 + number},
                ),
            ):
                if "FAKE_CPU" in os.environ and category != "user_annotation":
                    continue
                events.append(
                    {
                        "ph": "X",
                        "cat": category,
                        "name": name,
                        "tid": tid,
                        "args": args,
                        "pid": 0 if category == "kernel" else pid,
                        "ts": start + at * part,
                        "dur": length * part,
                    }
                )
        gpu = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
        with gzip.open(path, "wt") as file:
            json.dump({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": events}, file)
