"""What the sampled GPU metrics say of the typical step of a rank, in the answer.

A part of the published contract of `model.analysis`. What was not sampled is `None`, never 0.
"""

from dataclasses import dataclass
from enum import StrEnum


class GpuMetric(StrEnum):
    """Metrics whose meaning is known, each a share of the GPU's peak.

    `sm-active` is residency: how many multiprocessors hold a warp, not how much they do; `sm-issue` and
    `tensor-active` tell throughput. Of NVLink the user data of requests and responses is the payload;
    shares of PCIe hold its protocol too.
    """

    SM_ACTIVE = "sm-active"
    SM_ISSUE = "sm-issue"
    TENSOR_ACTIVE = "tensor-active"
    TENSOR_OR_FP16_ACTIVE = "tensor-or-fp16-active"  # Turing counts both together
    DRAM_READ = "dram-read"
    DRAM_WRITE = "dram-write"
    NVLINK_RECEIVED_REQUESTS = "nvlink-received-requests"
    NVLINK_RECEIVED_RESPONSES = "nvlink-received-responses"
    NVLINK_SENT_REQUESTS = "nvlink-sent-requests"
    NVLINK_SENT_RESPONSES = "nvlink-sent-responses"
    PCIE_RECEIVED = "pcie-received"
    PCIE_SENT = "pcie-sent"


SPELLED = {
    "sm active": GpuMetric.SM_ACTIVE,
    "sm issue": GpuMetric.SM_ISSUE,
    "tensor active": GpuMetric.TENSOR_ACTIVE,
    "tensor active / fp16 active": GpuMetric.TENSOR_OR_FP16_ACTIVE,
    "dram read bandwidth": GpuMetric.DRAM_READ,
    "dram write bandwidth": GpuMetric.DRAM_WRITE,
    "nvlink rx requests user data": GpuMetric.NVLINK_RECEIVED_REQUESTS,
    "nvlink rx responses user data": GpuMetric.NVLINK_RECEIVED_RESPONSES,
    "nvlink tx requests user data": GpuMetric.NVLINK_SENT_REQUESTS,
    "nvlink tx responses user data": GpuMetric.NVLINK_SENT_RESPONSES,
    "pcie rx bandwidth": GpuMetric.PCIE_RECEIVED,
    "pcie tx bandwidth": GpuMetric.PCIE_SENT,
}
"""The metrics as the configurations of Nsight Systems 2023.4 to 2026 name them, normalised."""


@dataclass(frozen=True, slots=True)
class MetricMean:
    """Mean of one metric over its samples in the typical step, as a share of the peak.

    Samples are whole percents: below a percent the mean is coarse, and above 1 it is rounded.
    """

    metric: GpuMetric
    mean_share: float
    samples: int


@dataclass(frozen=True, slots=True)
class GpuMetrics:
    """Samples of the rank's GPU whose time lies inside the steps of its typical step.

    They are of the whole GPU, whoever used it. `samples` counts moments; `exclusive_share` is of those
    during which no operation of another rank of the export ran on that GPU, `None` where it is unknown
    on which GPU another rank ran. Processes that were not captured are not seen.
    """

    gpu: int
    samples: int
    exclusive_share: float | None
    means: tuple[MetricMean, ...]
