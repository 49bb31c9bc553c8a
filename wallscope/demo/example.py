"""The example: a mixture-of-experts training run, as one rank of 16 or a job of four ranks records it.

Megatron Bridge on H100, dropless routing, all-to-all dispatch. Each layer reads its token counts back to the
host, which empties the launch queue. No compute overlaps dispatch and combine. Backward hides a part of the
reduction of gradients.

Ranks of a job run in turn. A method that may run a collective is a generator: it yields the earliest end of
the collective on its rank, and is resumed with the end on all ranks.
"""

import errno
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import count, cycle
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeAlias, TypeVar

from wallscope.demo.export_writer import ExportWriter
from wallscope.demo.machine import LAUNCH_CALL_NS, NULL_STREAM, CudaEvent, SimulatedMachine, Thread
from wallscope.records import dataclass

APPLICATION_ID = 0x77_73_64_65  # "wsde": marks an SQLite file as ours
_MAGIC, _APPLICATION_ID_AT = b"SQLite format 3\0", slice(68, 72)  # https://sqlite.org/fileformat2.html
SEED = 2026
STEADY_STEPS = 8
LAYERS = 6
MICROBATCHES = 4
MICROBATCHES_OF_LAST_STEP = 2
RETRY_AT = (5, 1, 2)  # step, microbatch and layer in which an allocation fails at first

GPUS = 8
PID = 41_200
START_UTC_NS = 1_790_000_000_000_000_000
STOP_NS = 1_000_000
"""From the last event to the end of the capture."""
FIRST_CALL_NS = 180_000_000
TAIL_OF_CAPTURE_NS = 150_000
DISPATCH_STREAM, GRADIENT_STREAM, INPUT_STREAM = 23, 27, 31
EVENT_POOL = 64

VARIATION = 0.04  # durations lie within this share of the typical one, up and down
FRAMEWORK_NS = 10_500  # on the host, before each launch
COLLECTIVE_NS = 22_000
COUNTS_READ_NS = 180_000  # what the host does with the token counts before it can go on
SLOWER_COUNTS_READ_NS = 500_000  # of the second run of a comparison
DATA_LOADING_NS = 1_300_000
OPTIMIZER_NS = 240_000
LOGGING_NS = 390_000
FIRST_LAUNCH_NS = 310_000  # the first launch of a kernel loads it
WARM_UP_FACTOR = 2.0

SLOW_PEER_SHARE = 0.09
SLOW_PEER_FACTORS = (1.6, 2.9)
HOT_LAYER, HOT_LAYER_FACTOR = 3, 1.3

COUNTS_BYTES, COUNTS_COPY_NS = 1_024, 1_600
SCALAR_BYTES, SCALAR_COPY_NS = 4, 1_400
BATCH_BYTES, BATCH_COPY_NS = 3 * 8 * 2_048, 4_200
GRADIENT_BYTES, GRADIENT_FILL_NS = 1 << 28, 96_000
WORKSPACE_BYTES, WORKSPACE_FILL_NS = 32 * 1_024, 1_500

ALLOCATION_NS, FAILED_ALLOCATION_NS = 190_000, 90_000
FREE_NS, FREED_BLOCKS = 310_000, 7

TRAIN = "megatron.bridge.training.train"
LAYER = "megatron.core.transformer.transformer_layer"
ENGINE = "autograd::engine::evaluate_function: "
DATA_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

RUNTIME, EXTENDED, DRIVER = "cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "cuLaunchKernelEx"
CALLS = {"runtime": RUNTIME, "extended": EXTENDED, "driver": DRIVER}
PREFIXES = {
    "te": "void transformer_engine",
    "norm": "void transformer_engine::normalization::rmsnorm",
    "router": "void transformer_engine::fused_router::fused",
    "grouped": "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm"
    "::GroupProblemShape<cute::tuple<int, int, int>>, cutlass::gemm::collective::CollectiveMma<"
    "cutlass::gemm::MainloopSm90ArrayTmaGmmaWarpSpecialized<(int)4>, cutlass::bfloat16_t, cutlass::layout",
    "tensors": "void multi_tensor_apply_kernel<TensorListMetadata<(int)4>, transformer_engine::multi_tensor",
    "sdpa": "cudnn_generated_fort_native_sdpa_sm90_flash",
    "nccl": "(ncclDevKernelArgsStorage<(unsigned long)4096>)",
}
ATTENTION = "norm qkv norm norm rope rope attention projection residual"
ROUTER = "norm gate top-k scores balance count rows-1 rows-2 rows-3"
EXPERTS = "chunk-map chunk-sort up swiglu down chunk-sort"
HEAD = "norm head softmax loss"

HEAD_BACKWARD = (
    "CrossEntropyFunctionBackward loss-b",
    "_LinearBackward head-d head-w",
    "_RMSNormBackward norm-b norm-e",
)
LAYER_BACKWARD = (
    "_moe_unpermute_mask_mapBackward unpermute-b",
    "_AllToAllBackward tokens",
    "_moe_chunk_sortBackward chunk-map chunk-sort",
    "_GroupedLinearBackward down-d down-w",
    "WeightedSwiGLUFunctionBackward swiglu-b",
    "_GroupedLinearBackward up-d up-w",
    "_moe_chunk_sortBackward chunk-sort",
    "_AllToAllBackward tokens",
    "_moe_permute_mask_mapBackward unpermute",
    "FusedTopkScoreFunctionBackward top-k-b",
    "RouterGatingLinearFunctionBackward gate-d gate-w",
    "_RMSNormBackward norm-b norm-e",
    "_LinearBackward projection-d projection-w",
    "FusedAttnFuncBackward row-sum attention-b to-16-bits",
    "FusedRoPEFuncBackward rope-b rope-b",
    "_LayerNormLinearBackward qkv-d qkv-w norm-b norm-e",
)
"""Functions of the autograd engine, each with the kernels it launches."""


_Result = TypeVar("_Result")
RankProgram: TypeAlias = Generator[int, int, _Result]
"""A part of the program: yields the earliest end of each collective, and receives the end on all ranks."""


@dataclass(frozen=True, slots=True)
class RankSetup:
    """What distinguishes one rank of a run.

    `compute_factor` scales the time of its kernels. Each rank of a job has its own `host_seed`, and draws the
    durations of collectives from the same numbers as the others. A single rank draws all from one series.
    """

    rank: int = 3
    rank_count: int = 16
    steady_steps: int = STEADY_STEPS
    counts_read_ns: int = COUNTS_READ_NS
    compute_factor: float = 1.0
    host_seed: int | None = None


JOB_RANKS, JOB_STEPS, LATE_RANK = 4, 4, 2
JOB: Final = tuple(
    RankSetup(
        rank,
        JOB_RANKS,
        JOB_STEPS,
        compute_factor=1.15 if rank == LATE_RANK else 1.0,
        host_seed=SEED + 1 + rank,
    )
    for rank in range(JOB_RANKS)
)
"""Ranks of the example job; the GPU of one is slower."""


class FrameworkKernel(NamedTuple):
    """A kernel as the framework launches it."""

    name: str
    duration_ns: int
    call: str
    range_text: str | None


def read_kernel_table() -> dict[str, FrameworkKernel]:
    """Return the kernels of `kernels.txt` by their aliases.

    A line has: alias, ns on the device, API call, kernel with `PREFIXES`, and after @ the range around it.
    """
    found = {}
    for line in Path(__file__).with_name("kernels.txt").read_text(encoding="utf-8").splitlines():
        alias, duration_ns, call, rest = line.split(maxsplit=3)
        name, _, range_text = rest.partition(" @")
        found[alias] = FrameworkKernel(
            name.format(**PREFIXES), int(duration_ns), CALLS[call], range_text or None
        )
    return found


class Training:
    """The run: its process, and the state that steps leave behind."""

    def __init__(self, writer: ExportWriter, setup: RankSetup) -> None:
        self.setup = setup
        self.machine = SimulatedMachine(writer, pid=PID + setup.rank, device=setup.rank)
        self.main = self.machine.thread("python", start_ns=FIRST_CALL_NS)
        self.autograd = self.machine.thread("pt_autograd_0", start_ns=FIRST_CALL_NS)
        self.shared_random = Random(SEED)
        self.random = self.shared_random if setup.host_seed is None else Random(setup.host_seed)
        self.kernels = read_kernel_table()
        self.loaded: set[str] = set()
        self.framework_ns = FRAMEWORK_NS * WARM_UP_FACTOR
        self.operations = count()
        self.events = cycle([self.machine.event() for _ in range(EVENT_POOL)])
        self.arrived = self.machine.event()
        self.reduced: list[CudaEvent] = []
        self.gathered: dict[int, CudaEvent] = {}

    def vary(self, typical_ns: float) -> int:
        """Return a duration near the typical one."""
        return _vary(typical_ns, self.random)

    def operation(self, thread: Thread, text: str) -> AbstractContextManager[None]:
        """Return a range as PyTorch marks its operations: with a number that counts up."""
        return thread.range(f"{text}, op_id = {next(self.operations)}")

    def run(self, thread: Thread, *aliases: str) -> None:
        """Launch kernels into the compute stream, each after host work of the framework."""
        for alias in aliases:
            thread.work(self.vary(self.framework_ns))
            text = self.kernels[alias].range_text
            with thread.range(text) if text else nullcontext():
                self.launch(thread, alias)

    def launch(self, thread: Thread, alias: str) -> None:
        """Launch a kernel into the compute stream."""
        kernel = self.kernels[alias]
        call_ns = self.load(thread, kernel)
        duration_ns = self.vary(kernel.duration_ns * self.setup.compute_factor)
        thread.launch(kernel.name, duration_ns, call=kernel.call, call_ns=self.vary(call_ns))

    def load(self, thread: Thread, kernel: FrameworkKernel) -> int:
        """Allocate memory for a kernel whose name is new, and return the typical duration of its launch."""
        if kernel.name in self.loaded:
            return LAUNCH_CALL_NS
        self.loaded.add(kernel.name)
        thread.allocate(self.vary(ALLOCATION_NS))
        return FIRST_LAUNCH_NS

    def collective(
        self, thread: Thread, alias: str, stream: int, *, done: CudaEvent | None = None, factor: float = 1.0
    ) -> RankProgram[CudaEvent]:
        """Launch a collective after the work of the compute stream, and return the event of its end."""
        ready, done = next(self.events), done or next(self.events)
        kernel = self.kernels[alias]
        with self.operation(thread, kernel.range_text or alias):
            thread.work(self.vary(COLLECTIVE_NS))
            thread.record(ready)
            thread.wait_event(stream, ready)
            call_ns = self.load(thread, kernel)
            duration_ns = _vary(kernel.duration_ns * factor, self.shared_random)
            call_ns = self.vary(call_ns)
            start_ns = self.machine.start_ns(stream, thread.now_ns + call_ns)
            end_ns = yield start_ns + duration_ns
            thread.launch(kernel.name, end_ns - start_ns, stream=stream, call=kernel.call, call_ns=call_ns)
            thread.record(done, stream)
        return done

    def exchange(self, thread: Thread, layer: int, *aliases: str) -> RankProgram[None]:
        """Run all-to-alls that compute waits for; the slowest peer determines their duration."""
        factor = HOT_LAYER_FACTOR if layer == HOT_LAYER else 1.0
        if self.shared_random.random() < SLOW_PEER_SHARE:
            factor *= self.shared_random.uniform(*SLOW_PEER_FACTORS)
        for alias in aliases:
            done = yield from self.collective(thread, alias, DISPATCH_STREAM, factor=factor)
            thread.wait_event(NULL_STREAM, done)

    def forward_layer(self, layer: int) -> RankProgram[None]:
        """Run attention, router, dispatch, experts and combine on the main thread."""
        main = self.main
        if gathered := self.gathered.pop(layer, None):
            main.wait_event(NULL_STREAM, gathered)
        with main.range(f"{LAYER}._forward_attention.self_attention"):
            self.run(main, *ATTENTION.split())
        with main.range(f"{LAYER}._forward_mlp.mlp"):
            main.fill(WORKSPACE_BYTES, WORKSPACE_FILL_NS)
            self.run(main, *ROUTER.split())
            yield from self.read_counts()
            self.run(main, "permute")
            yield from self.exchange(main, layer, "tokens", "probabilities")
            self.run(main, *EXPERTS.split())
            yield from self.exchange(main, layer, "tokens")
            self.run(main, "unpermute")
        self.run(main, "residual")

    def read_counts(self) -> RankProgram[None]:
        """Copy the token counts to the host, which waits for them: the launch queue becomes empty."""
        yield from self.exchange(self.main, 0, "counts")
        for _ in range(2):
            self.main.copy("device-to-host", COUNTS_BYTES, COUNTS_COPY_NS)
        self.main.synchronize()
        self.main.work(self.vary(self.setup.counts_read_ns))

    def read_scalar(self) -> None:
        """Do what `.item()` does: copy to pageable memory and synchronize."""
        with self.operation(self.main, "aten::item"):
            self.main.copy("device-to-host", SCALAR_BYTES, SCALAR_COPY_NS, host_memory="pageable")
            self.main.synchronize()

    def run_backward(self, functions: tuple[str, ...], layer: int = 0) -> RankProgram[None]:
        """Run functions of the autograd engine on its thread."""
        for line in functions:
            function, *aliases = line.split()
            with self.operation(self.autograd, ENGINE + function):
                if function == "_AllToAllBackward":
                    yield from self.exchange(self.autograd, layer, *aliases)
                else:
                    self.run(self.autograd, *aliases)

    def backward(self, *, reduces: bool) -> RankProgram[None]:
        """Run backward of a microbatch on the autograd thread; the last one also reduces the gradients."""
        self.autograd.follow(self.main)
        yield from self.run_backward(HEAD_BACKWARD)
        for layer in reversed(range(LAYERS)):
            yield from self.run_backward(LAYER_BACKWARD, layer)
            if reduces:
                done = self.machine.event()
                reduced = self.collective(self.autograd, "gradients", GRADIENT_STREAM, done=done)
                self.reduced.append((yield from reduced))
        self.main.follow(self.autograd)

    def fetch_batch(self) -> None:
        """Start the copy of a batch to the device; it overlaps other work."""
        self.main.copy("host-to-device", BATCH_BYTES, BATCH_COPY_NS, stream=INPUT_STREAM)
        self.main.record(self.arrived, INPUT_STREAM)

    def forward_backward(self, step: int, microbatches: int) -> RankProgram[None]:
        """Run all microbatches of a step; the batch of each is copied while the previous one runs."""
        self.main.fill(GRADIENT_BYTES, GRADIENT_FILL_NS)
        with self.operation(self.main, DATA_LOADER):
            self.main.work(self.vary(DATA_LOADING_NS))
        self.fetch_batch()
        for microbatch in range(microbatches):
            self.main.wait_event(NULL_STREAM, self.arrived)
            if microbatch + 1 < microbatches:
                self.fetch_batch()
            self.run(self.main, "embedding")
            for layer in range(LAYERS):
                if (step, microbatch, layer) == RETRY_AT:
                    self.retry_allocation()
                yield from self.forward_layer(layer)
            self.run(self.main, *HEAD.split())
            yield from self.backward(reduces=microbatch == MICROBATCHES - 1)

    def retry_allocation(self) -> None:
        """Fail to allocate: free all cached blocks, then allocate again."""
        self.main.allocate(FAILED_ALLOCATION_NS)
        for _ in range(FREED_BLOCKS):
            self.main.free(self.vary(FREE_NS))
        self.main.allocate(self.vary(ALLOCATION_NS))

    def run_optimizer(self) -> RankProgram[None]:
        """Clip and apply the reduced gradients, then start to gather the parameters."""
        main = self.main
        with main.range(f"{TRAIN}.train_step.optimizer_step"):
            while self.reduced:
                main.wait_event(NULL_STREAM, self.reduced.pop(0))
            self.run(main, *["gradient-norm"] * 3)
            summed = yield from self.collective(main, "norm-sum", GRADIENT_STREAM)
            main.wait_event(NULL_STREAM, summed)
            self.read_scalar()
            main.work(self.vary(OPTIMIZER_NS))
            self.run(main, "scale", "scale", *["adam"] * 4)
            for layer in range(LAYERS):
                done = self.machine.event()
                self.gathered[layer] = yield from self.collective(
                    main, "parameters", GRADIENT_STREAM, done=done
                )

    def step(self, number: int) -> RankProgram[None]:
        """Run one whole step, which ends with reading the loss for the log."""
        with self.main.range(f"{TRAIN}.train.training_step_{number}"):
            with self.main.range(f"{TRAIN}.train_step"):
                yield from self.forward_backward(number, MICROBATCHES)
                yield from self.run_optimizer()
            self.read_scalar()
            self.main.work(self.vary(LOGGING_NS))

    def train(self) -> RankProgram[None]:
        """Run a warm-up step that loads kernels, steady steps, and one that the capture cuts short."""
        yield from self.step(0)
        self.framework_ns = FRAMEWORK_NS
        for number in range(1, self.setup.steady_steps + 1):
            yield from self.step(number)
        last = self.setup.steady_steps + 1
        with self.main.range(f"{TRAIN}.train.training_step_{last}"), self.main.range(f"{TRAIN}.train_step"):
            yield from self.forward_backward(last, MICROBATCHES_OF_LAST_STEP)
            # ranges that are open when the capture ends are exported with its end
            self.main.work(self.machine.end_ns() - self.main.now_ns + TAIL_OF_CAPTURE_NS)


def write_example(path: Path, counts_read_ns: int = COUNTS_READ_NS) -> None:
    """Write the export of one rank; the host works with token counts for `counts_read_ns` in each layer.

    Raises:
        OSError: the file cannot be written.
    """
    write_ranks({path: RankSetup(counts_read_ns=counts_read_ns)})


def write_ranks(setups: Mapping[Path, RankSetup]) -> None:
    """Write the exports of ranks that run together.

    Raises:
        OSError: a file cannot be written.
    """
    with ExitStack() as writers:
        try:
            opened = {
                writers.enter_context(ExportWriter(path, application_id=APPLICATION_ID)): setup
                for path, setup in setups.items()
            }
            ranks = [Training(_begin_export(writer, setup), setup) for writer, setup in opened.items()]
            _run_together([rank.train() for rank in ranks])
            for rank in ranks:
                _end_export(rank.machine)
            writers.close()
        except sqlite3.Error as error:
            raise OSError(errno.EIO, str(error)) from error


def is_example(path: Path) -> bool:
    """Return whether a file is an example export; `False` for what cannot be read."""
    try:
        with path.open("rb") as stream:
            header = stream.read(100)
    except OSError:
        return False
    return header.startswith(_MAGIC) and header[_APPLICATION_ID_AT] == APPLICATION_ID.to_bytes(4)


def _begin_export(writer: ExportWriter, setup: RankSetup) -> ExportWriter:
    """Write the facts about machine, environment and capture."""
    for number in range(GPUS):
        writer.gpu(number)
    writer.machine("h100-node-01", START_UTC_NS)
    rank = str(setup.rank)
    size = str(setup.rank_count)
    writer.environment(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=rank, CUDA_DEVICE_MAX_CONNECTIONS="1")
    writer.capture_option("CAPTURE_EVENT_TYPE", "Cuda")
    writer.capture_option("CAPTURE_EVENT_TYPE", "NvtxEvents")
    return writer


def _end_export(machine: SimulatedMachine) -> None:
    """Write the end of the capture."""
    end_ns = machine.end_ns() + STOP_NS
    writer = machine.writer
    writer.row("ANALYSIS_DETAILS", globalVid=1 << 48, duration=end_ns, startTime=0, stopTime=end_ns)
    writer.row("DIAGNOSTIC_EVENT", timestamp=end_ns, text="Profiling has stopped.", severity=1)


def _run_together(programs: Sequence[RankProgram[None]]) -> None:
    """Run ranks in turn; a collective ends on all of them when the last one can end it."""
    ends_ns = [next(program) for program in programs]
    while ends_ns:
        end_ns = max(ends_ns)
        ends_ns = [next_ns for program in programs for next_ns in _resume(program, end_ns)]


def _resume(program: RankProgram[None], end_ns: int) -> list[int]:
    """Return the earliest end of the next collective; empty after the last one."""
    try:
        return [program.send(end_ns)]
    except StopIteration:
        return []


def _vary(typical_ns: float, random: Random) -> int:
    return round(typical_ns * random.uniform(1 - VARIATION, 1 + VARIATION))
