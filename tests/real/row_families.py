"""Which rows each recommendation changes, in plain SQL or JSON, without any code of wallscope."""

import gzip
import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_COPIES = {
    1: "copy in",
    2: "copy out",
    8: "copy on device",
    10: "peer copy",
    11: "migration",
    12: "migration",
}
_COPIES_BY_NAME = {
    "HtoD": "copy in",
    "Host -> Device": "copy in",
    "HostToDevice": "copy in",
    "DtoH": "copy out",
    "Device -> Host": "copy out",
    "DeviceToHost": "copy out",
    "DtoD": "copy on device",
    "Device -> Device": "copy on device",
    "DeviceToDevice": "copy on device",
    "PtoP": "peer copy",
}
_OPERATIONS = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "fill",
    "memset": "fill",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """How often each name occurs: of kernels, kinds of copies and fills, calls of the API, and ranges."""

    kernels: Counter[str]
    copies: Counter[str]
    calls: Counter[str]
    ranges: Counter[str]

    def count(self, family: str) -> int:
        """How many rows belong to a family of `FAMILIES`: those of the first table that has some."""
        return max(
            sum(number for name, number in getattr(self, table).items() if re.search(pattern, name))
            for table, pattern in FAMILIES[family]
        )


def read_rows(path: Path) -> Rows:
    """The rows of an export or of a trace."""
    return _read_export(path) if path.suffix == ".sqlite" else _read_trace(path)


def _read_export(path: Path) -> Rows:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as rows, rows:
        tables = {name for (name,) in rows.execute("SELECT name FROM sqlite_master")}

        def count(table: str, column: str, join: str = "") -> Counter[str]:
            if f"CUPTI_ACTIVITY_KIND_{table}" not in tables and table not in tables:
                return Counter()
            name = table if table in tables else f"CUPTI_ACTIVITY_KIND_{table}"
            found = rows.execute(f"SELECT {column}, COUNT(*) FROM {name} AS t {join} GROUP BY 1")
            return Counter({str(value): number for value, number in found})

        kernels = Counter[str]()
        for column in ("shortName", "demangledName"):
            kernels |= count("KERNEL", "s.value", f"JOIN StringIds AS s ON s.id = t.{column}")
        copies = Counter[str]()
        for kind, number in count("MEMCPY", "copyKind").items():
            copies[_COPIES.get(int(kind), "unknown copy")] += number
        copies["fill"] = count("MEMSET", "'fill'").total()
        copies["graph"] = count("GRAPH_TRACE", "'graph'").total()
        calls = count("RUNTIME", "s.value", "JOIN StringIds AS s ON s.id = t.nameId")
        calls += count("DRIVER", "s.value", "JOIN StringIds AS s ON s.id = t.nameId")
        ranges = Counter[str]()
        if "NVTX_EVENTS" in tables:
            ranges += count(
                "NVTX_EVENTS", "COALESCE(t.text, s.value)", "LEFT JOIN StringIds AS s ON s.id = t.textId"
            )
        return Rows(kernels, copies, calls, ranges)


def _read_trace(path: Path) -> Rows:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as text:
        document = json.load(text)
    events = document if isinstance(document, list) else document["traceEvents"]
    kernels, copies, calls, ranges = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for event in events:
        category, name = str(event.get("cat", "")).lower(), str(event.get("name", ""))
        operation = _OPERATIONS.get(category)
        if operation == "kernel":
            kernels[name] += 1
        elif operation == "fill":
            copies["fill"] += 1
        elif operation == "memcpy":
            kind = next((kind for part, kind in _COPIES_BY_NAME.items() if part in name), "unknown copy")
            copies[kind] += 1
        elif category in {"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime"}:
            calls[name] += 1
        elif event.get("ph") == "X":
            ranges[name] += 1
    return Rows(kernels, copies, calls, ranges)


_LAUNCH = ("calls", r"(?i)Launch")
_COMMUNICATES = (
    (
        "kernels",
        r"(?i)nccl|rccl|deep_?ep|hybrid|nvshmem|userbuffers|multimem|all_?reduce|all_?gather|cross_device",
    ),
    ("copies", r"^(peer copy|copy on device)$"),
)
FAMILIES: dict[str, tuple[tuple[str, str], ...]] = {
    "kernels": (("kernels", ""), ("copies", "graph")),
    "matrix kernels": (
        (
            "kernels",
            r"(?i)gemm|gemv|cutlass|cublas|xmma|nvjet|dot|matmul|Cijk|mma|conv|attention|flash|fmha|mlp",
        ),
    ),
    "attention kernels": (("kernels", r"(?i)attention|attn|fmha|flash|softmax|sdpa"),),
    "ranges of attention": (("ranges", r"(?i)attention|attn"),),
    "convolutions": (
        ("kernels", r"(?i)conv|fprop|dgrad|wgrad|implicit|winograd|cudnn|xmma|fft|igemm|dw_?op|miopen"),
    ),
    "norms": (("kernels", r"(?i)norm|bn_|RMS|welford"),),
    "losses": (("kernels", r"(?i)softmax|cross_?entropy|nll"), ("ranges", r"(?i)softmax|cross_?entropy|nll")),
    "optimizer": (
        ("kernels", r"(?i)adam|sgd|lamb|multi_tensor|optimizer"),
        ("ranges", r"(?i)optimizer"),
    ),
    "embeddings": (("kernels", r"(?i)embed|indexSelect|gather|index|grad_weight|encoding|grid"),),
    "backward": (
        ("kernels", r"(?i)backward|bwd|dgrad|wgrad|adam|multi_tensor|grad"),
        ("ranges", r"(?i)backward|autograd|optimizer|train"),
        _COMMUNICATES[0],
    ),
    "quantizing": (("kernels", r"(?i)quant|cast|scale|fp8|amax"),),
    "experts": (("kernels", r"(?i)group|permute|router|topk|moe|expert|sort|deep_?ep|hybrid|nccl"),),
    "communication": _COMMUNICATES,
    "all-to-all of NCCL": (("kernels", r"(?i)(nccl|rccl).*(SendRecv|AllToAll)"),),
    "DeepEP": (("kernels", r"(?i)deep_?ep"),),
    "copies in": (("copies", r"^(copy in|unknown copy)$"),),
    "copies out": (("copies", r"^(copy out|unknown copy)$"),),
    "copies": (("copies", r"copy"),),
    "copies on the device": (("copies", r"^(copy on device|unknown copy)$"),),
    "migrations": (("copies", r"^migration$"),),
    "fills": (("copies", r"^fill$"),),
    "allocations": (
        (
            "calls",
            r"(?i)malloc|free|mem(alloc|create|map|unmap|release|hostregister)|hostalloc|hostregister|memaddress|mempool",
        ),
    ),
    "device waits": (("calls", r"(Device|Ctx)Synchronize"),),
    "stream waits": (("calls", r"(?i)(Stream|Event)(Synchronize|Query)|Synchronize"),),
    "waits": (("calls", r"(?i)Synchronize|Memcpy"),),
    "launches": (_LAUNCH,),
    "calls": (("calls", ""),),
    "loading": (
        ("copies", r"^(copy in|unknown copy)$"),
        ("ranges", r"(?i)load|batch|dali"),
    ),
    "ranges": (("ranges", ""),),
}
"""Regular expressions by table: a family has rows if one of its tables has some."""


ROWS_OF_RULES: dict[str, tuple[str, ...]] = {
    "ranges of attention": ("fuse-attention",),
    "kernels": (
        "even-gpu-clocks",
        "even-stages",
        "even-tokens",
        "even-work",
        "fill-the-gpu",
        "fuse-elementwise",
        "fewer-kernels",
        "fewer-stream-changes",
        "kernel-analysis",
        "kernel-analysis-rocm",
        "largest-kernels",
        "name-kernels",
        "trace-graph-nodes",
        "exclusive-gpu",
        "resident-pages",
        "no-recompute",
        "narrower-recompute",
        "complete-capture",
        "trace-events",
        "trace-synchronizations",
        "lighter-capture",
    ),
    "matrix kernels": (
        "bf16",
        "tf32",
        "fp16",
        "fp16-inference",
        "fp8-blockwise",
        "mxfp8",
        "nvfp4",
        "fp8-inference",
        "newer-matrix-kernels",
        "raise-clocks",
    ),
    "attention kernels": (
        "other-attention",
        "attention-backend",
        "attention-backend-rocm",
        "newer-attention",
        "fp8-attention",
    ),
    "convolutions": (
        "convolution-tuning",
        "convolution-tuning-rocm",
    ),
    "norms": (
        "evaluation-mode",
        "fused-norm-quantize",
        "fused-norm",
        "norm-sm-margin",
    ),
    "losses": ("fused-loss",),
    "optimizer": (
        "sharded-optimizer",
        "fused-optimizer",
        "fused-update",
        "precision-aware-optimizer",
        "offload-optimizer",
        "cuda-graph-optimizer",
    ),
    "quantizing": ("less-quantising",),
    "embeddings": (
        "embedding-balance",
        "embedding-gradient",
    ),
    "backward": (
        "selective-recompute-experts",
        "selective-recompute",
        "offload-activations",
    ),
    "vision": ("freeze-vision",),
    "experts": (
        "group-experts",
        "aligned-experts",
        "fused-experts",
        "permute-fusion",
        "router-fusion",
        "fewer-local-permutes",
        "dispatcher-sms",
        "dispatcher-sms-computed",
        "permute-in-hybridep",
        "cuda-graphs-experts",
        "cuda-graphs-more",
        "cuda-graphs-full-iteration",
    ),
    "launches": (
        "cuda-graphs-dense",
        "cuda-graphs-pytorch",
        "cuda-graphs-program",
        "fewer-launches",
        "larger-microbatch",
        "work-beside",
        "cpu-binding",
        "look-into-the-host",
        "stacks-of-the-host",
        "keep-threads-apart",
        "no-blocking-copies",
    ),
    "waits": (
        "launch-ahead",
        "sync-free-experts",
        "drop-and-pad",
    ),
    "device waits": ("no-device-wide-waits",),
    "stream waits": ("fewer-waits",),
    "copies out": (
        "fewer-readbacks",
        "asynchronous-readback",
    ),
    "copies in": (
        "pin-batches",
        "prefetch-batches",
        "parameters-on-device",
    ),
    "copies": (
        "no-offload",
        "overlap-offload",
        "smaller-offload",
        "join-small-copies",
        "batch-copies",
        "copies-of-known-kind",
        "origin-of-memory-calls",
    ),
    "copies on the device": (
        "fewer-device-copies",
        "gradient-bucket-views",
    ),
    "migrations": ("no-migration",),
    "fills": ("fewer-fills",),
    "allocations": (
        "expandable-segments",
        "allocate-once",
        "fewer-temporaries",
    ),
    "loading": (
        "data-workers",
        "prepare-inputs",
        "gpu-data-pipeline",
        "deeper-data-pipeline",
    ),
    "calls": (
        "even-hosts",
        "stall-together",
        "fewer-other-calls",
        "mark-the-steps",
        "manual-gc",
        "rarer-gc",
        "no-file-access",
        "background-checkpoint",
        "no-network-calls",
        "enough-requests",
    ),
    "all-to-all of NCCL": (
        "hybridep",
        "deepep",
        "expert-exchange-beside-compute",
    ),
    "DeepEP": (
        "deepep-beside-compute",
        "deepep-network",
    ),
    "communication": (
        "overlap-grad-reduce",
        "gradient-buckets",
        "no-buffer-broadcast",
        "bf16-gradients",
        "reduce-less-often",
        "optimizer-instances",
        "overlap-param-gather",
        "param-gather-in-the-optimizer",
        "fp8-param-gather",
        "fsdp-user-buffers",
        "hybridep-in-the-rack",
        "ep-overlap",
        "ep-overlap-delayed-wgrad",
        "experts-in-the-domain",
        "shared-expert-overlap",
        "even-experts",
        "tp-overlap",
        "tp-overlap-blackwell",
        "tp-overlap-shapes",
        "less-tensor-parallelism",
        "cp-point-to-point",
        "cp-hierarchical",
        "less-context-parallelism",
        "interleaved-pipeline",
        "pipeline-layout",
        "more-microbatches",
        "pipeline-embedding-wgrad",
        "pipeline-chunks",
        "even-out-ranks",
        "even-images",
        "even-links",
        "bucketed-gradients",
        "name-the-axis",
        "techniques-by-axis",
        "all-ranks",
        "overlap-what-is-exposed",
        "high-priority-communication",
        "nccl-memory",
    ),
}
"""The rules by the family of rows that they change: one of them must be there for a recommendation."""
FAMILY = {rule: family for family, rules in ROWS_OF_RULES.items() for rule in rules}
LARGE = 0.10
_WALLS = {"compute", "communication", "memory", "host", "unattributed"}


def list_walls_without_action(found):
    """The walls of the diagnosed rank that take a tenth of the step, and that no recommendation is for."""
    if any(one.code == "no-kernels" for one in found.capture.findings):
        return []  # no verdict: its finding says what to do
    rank = found.ranks[found.diagnosis.rank_index]
    shown = {cause.split("/")[0] for fix in found.fixes or () for cause in fix.causes}
    walls = _WALLS - {"compute"} | _WALLS & {found.diagnosis.dominant_wall}
    return sorted(
        wall for wall in walls - shown if getattr(rank.typical.walls, wall) >= LARGE * rank.typical.step_ns
    )
