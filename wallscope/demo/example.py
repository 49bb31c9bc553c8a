"""The example: a mixture-of-experts training run, as one rank of 16 records it.

Megatron Bridge on H100, dropless routing, all-to-all dispatch. Each layer reads its token counts back to the
host, which empties the launch queue. No compute overlaps dispatch and combine. Backward hides a part of the
reduction of gradients.
"""

from contextlib import AbstractContextManager, nullcontext
from itertools import count, cycle
from pathlib import Path
from random import Random
from typing import NamedTuple

from wallscope.demo.export_writer import ExportWriter
from wallscope.demo.machine import LAUNCH_CALL_NS, NULL_STREAM, CudaEvent, SimulatedMachine, Thread

SEED = 2026
STEADY_STEPS = 8
LAYERS = 6
MICROBATCHES = 4
MICROBATCHES_OF_LAST_STEP = 2
RETRY_AT = (5, 1, 2)  # step, microbatch and layer in which an allocation fails at first

GPUS = 8
LOCAL_RANK = 3
PID = 41_203
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

    def __init__(self, writer: ExportWriter, counts_read_ns: int) -> None:
        self.counts_read_ns = counts_read_ns
        self.machine = SimulatedMachine(writer, pid=PID, device=LOCAL_RANK)
        self.main = self.machine.thread("python", start_ns=FIRST_CALL_NS)
        self.autograd = self.machine.thread("pt_autograd_0", start_ns=FIRST_CALL_NS)
        self.random = Random(SEED)
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
        return round(typical_ns * self.random.uniform(1 - VARIATION, 1 + VARIATION))

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

    def launch(self, thread: Thread, alias: str, *, stream: int = NULL_STREAM, factor: float = 1.0) -> None:
        """Launch a kernel; the first of its name allocates memory and is loaded."""
        kernel = self.kernels[alias]
        call_ns = LAUNCH_CALL_NS
        if kernel.name not in self.loaded:
            self.loaded.add(kernel.name)
            thread.allocate(self.vary(ALLOCATION_NS))
            call_ns = FIRST_LAUNCH_NS
        duration_ns = self.vary(kernel.duration_ns * factor)
        thread.launch(kernel.name, duration_ns, stream=stream, call=kernel.call, call_ns=self.vary(call_ns))

    def collective(
        self, thread: Thread, alias: str, stream: int, *, done: CudaEvent | None = None, factor: float = 1.0
    ) -> CudaEvent:
        """Launch a collective after the work of the compute stream, and return the event of its end."""
        ready, done = next(self.events), done or next(self.events)
        with self.operation(thread, self.kernels[alias].range_text or alias):
            thread.work(self.vary(COLLECTIVE_NS))
            thread.record(ready)
            thread.wait_event(stream, ready)
            self.launch(thread, alias, stream=stream, factor=factor)
            thread.record(done, stream)
        return done

    def exchange(self, thread: Thread, layer: int, *aliases: str) -> None:
        """Run all-to-alls that compute waits for; the slowest peer determines their duration."""
        factor = HOT_LAYER_FACTOR if layer == HOT_LAYER else 1.0
        if self.random.random() < SLOW_PEER_SHARE:
            factor *= self.random.uniform(*SLOW_PEER_FACTORS)
        for alias in aliases:
            done = self.collective(thread, alias, DISPATCH_STREAM, factor=factor)
            thread.wait_event(NULL_STREAM, done)

    def forward_layer(self, layer: int) -> None:
        """Run attention, router, dispatch, experts and combine on the main thread."""
        main = self.main
        if gathered := self.gathered.pop(layer, None):
            main.wait_event(NULL_STREAM, gathered)
        with main.range(f"{LAYER}._forward_attention.self_attention"):
            self.run(main, *ATTENTION.split())
        with main.range(f"{LAYER}._forward_mlp.mlp"):
            main.fill(WORKSPACE_BYTES, WORKSPACE_FILL_NS)
            self.run(main, *ROUTER.split())
            self.read_counts()
            self.run(main, "permute")
            self.exchange(main, layer, "tokens", "probabilities")
            self.run(main, *EXPERTS.split())
            self.exchange(main, layer, "tokens")
            self.run(main, "unpermute")
        self.run(main, "residual")

    def read_counts(self) -> None:
        """Copy the token counts to the host, which waits for them: the launch queue becomes empty."""
        self.exchange(self.main, 0, "counts")
        for _ in range(2):
            self.main.copy("device-to-host", COUNTS_BYTES, COUNTS_COPY_NS)
        self.main.synchronize()
        self.main.work(self.vary(self.counts_read_ns))

    def read_scalar(self) -> None:
        """Do what `.item()` does: copy to pageable memory and synchronize."""
        with self.operation(self.main, "aten::item"):
            self.main.copy("device-to-host", SCALAR_BYTES, SCALAR_COPY_NS, host_memory="pageable")
            self.main.synchronize()

    def run_backward(self, functions: tuple[str, ...], layer: int = 0) -> None:
        """Run functions of the autograd engine on its thread."""
        for line in functions:
            function, *aliases = line.split()
            with self.operation(self.autograd, ENGINE + function):
                if function == "_AllToAllBackward":
                    self.exchange(self.autograd, layer, *aliases)
                else:
                    self.run(self.autograd, *aliases)

    def backward(self, *, reduces: bool) -> None:
        """Run backward of a microbatch on the autograd thread; the last one also reduces the gradients."""
        self.autograd.follow(self.main)
        self.run_backward(HEAD_BACKWARD)
        for layer in reversed(range(LAYERS)):
            self.run_backward(LAYER_BACKWARD, layer)
            if reduces:
                done = self.machine.event()
                self.reduced.append(self.collective(self.autograd, "gradients", GRADIENT_STREAM, done=done))
        self.main.follow(self.autograd)

    def fetch_batch(self) -> None:
        """Start the copy of a batch to the device; it overlaps other work."""
        self.main.copy("host-to-device", BATCH_BYTES, BATCH_COPY_NS, stream=INPUT_STREAM)
        self.main.record(self.arrived, INPUT_STREAM)

    def forward_backward(self, step: int, microbatches: int) -> None:
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
                self.forward_layer(layer)
            self.run(self.main, *HEAD.split())
            self.backward(reduces=microbatch == MICROBATCHES - 1)

    def retry_allocation(self) -> None:
        """Fail to allocate: free all cached blocks, then allocate again."""
        self.main.allocate(FAILED_ALLOCATION_NS)
        for _ in range(FREED_BLOCKS):
            self.main.free(self.vary(FREE_NS))
        self.main.allocate(self.vary(ALLOCATION_NS))

    def run_optimizer(self) -> None:
        """Clip and apply the reduced gradients, then start to gather the parameters."""
        main = self.main
        with main.range(f"{TRAIN}.train_step.optimizer_step"):
            while self.reduced:
                main.wait_event(NULL_STREAM, self.reduced.pop(0))
            self.run(main, *["gradient-norm"] * 3)
            main.wait_event(NULL_STREAM, self.collective(main, "norm-sum", GRADIENT_STREAM))
            self.read_scalar()
            main.work(self.vary(OPTIMIZER_NS))
            self.run(main, "scale", "scale", *["adam"] * 4)
            for layer in range(LAYERS):
                done = self.machine.event()
                self.gathered[layer] = self.collective(main, "parameters", GRADIENT_STREAM, done=done)

    def step(self, number: int) -> None:
        """Run one whole step, which ends with reading the loss for the log."""
        with self.main.range(f"{TRAIN}.train.training_step_{number}"):
            with self.main.range(f"{TRAIN}.train_step"):
                self.forward_backward(number, MICROBATCHES)
                self.run_optimizer()
            self.read_scalar()
            self.main.work(self.vary(LOGGING_NS))

    def train(self) -> None:
        """Run a warm-up step that loads kernels, steady steps, and one that the capture cuts short."""
        self.step(0)
        self.framework_ns = FRAMEWORK_NS
        for number in range(1, STEADY_STEPS + 1):
            self.step(number)
        last = STEADY_STEPS + 1
        with self.main.range(f"{TRAIN}.train.training_step_{last}"), self.main.range(f"{TRAIN}.train_step"):
            self.forward_backward(last, MICROBATCHES_OF_LAST_STEP)
            # ranges that are open when the capture ends are exported with its end
            self.main.work(self.machine.end_ns() - self.main.now_ns + TAIL_OF_CAPTURE_NS)


def write_example(path: Path, counts_read_ns: int = COUNTS_READ_NS) -> None:
    """Write the example's export; the host works with token counts for `counts_read_ns` in each layer."""
    with ExportWriter(path) as writer:
        for number in range(GPUS):
            writer.gpu(number)
        writer.machine("h100-node-01", START_UTC_NS)
        writer.environment(RANK="3", WORLD_SIZE="16", LOCAL_RANK="3", CUDA_DEVICE_MAX_CONNECTIONS="1")
        writer.capture_option("CAPTURE_EVENT_TYPE", "Cuda")
        writer.capture_option("CAPTURE_EVENT_TYPE", "NvtxEvents")
        training = Training(writer, counts_read_ns)
        training.train()
        end_ns = training.machine.end_ns() + STOP_NS
        writer.row("ANALYSIS_DETAILS", globalVid=1 << 48, duration=end_ns, startTime=0, stopTime=end_ns)
        writer.row("DIAGNOSTIC_EVENT", timestamp=end_ns, text="Profiling has stopped.", severity=1)
