"""Launch shapes of kernels, and the streams that ran operations."""

from pathlib import Path

from fixtures.export import ExportWriter
from wallscope.model.capture import Capture
from wallscope.nsys import read_capture


def _captured(tmp_path: Path) -> Capture:
    path = tmp_path / "shapes.sqlite"
    with ExportWriter(path) as writer:
        writer.call("cudaLaunchKernel_v7000", 0, 4)
        writer.copy("host-to-device", 0, 5, 100)
        shape = {"gridX": 3, "gridY": 2, "gridZ": 5, "blockX": 32, "blockY": 4, "blockZ": 1}
        writer.kernel(
            "k",
            10,
            20,
            stream=9,
            registersPerThread=40,
            staticSharedMemory=16,
            dynamicSharedMemory=1024,
            **shape,
        )
        writer.row("TARGET_INFO_CUDA_STREAM", hwId=0, vmId=1, processId=1000, contextId=1, streamId=9, flag=2)
    return read_capture(path, lambda _: None)


def test_a_kernel_has_its_grid_its_block_and_what_they_take(tmp_path: Path) -> None:
    assert _captured(tmp_path).kernels.rows() == [(1, 30, 128, 40, 1040)]


def test_streams_bear_the_number_and_the_flags_that_cuda_gives_them(tmp_path: Path) -> None:
    rows = _captured(tmp_path).streams.select("stream", "context", "number", "flags").rows()
    assert rows == [(0, 1, 7, None), (1, 1, 9, "nonblocking")]
