"""A configuration checked without a trace: every precondition, and whether its layout can be."""

from wallscope.advice.conditions import all_hold
from wallscope.advice.configuration import Read
from wallscope.advice.folding import folding
from wallscope.advice.preconditions import Feature, features, lookup_in, rows, switched_on
from wallscope.errors import LayoutError
from wallscope.model.advice import ConfigurationCheck, FeatureCheck, Folding, Judged, Sizes
from wallscope.model.configuration import RunConfiguration, TraceFacts


def check(read: Read, trace: TraceFacts) -> ConfigurationCheck:
    """Judge every row, and fold the layout where its sizes and the number of GPUs are known.

    Raises:
        LayoutError: the layout cannot be.
    """
    configuration = read.configuration
    return ConfigurationCheck(
        "wallscope.check-config/1",
        tuple(_feature(feature, configuration, trace) for feature in features()),
        layout_of(configuration, trace),
        read.findings,
    )


def _feature(feature: Feature, configuration: RunConfiguration, trace: TraceFacts) -> FeatureCheck:
    on = all_hold(feature.on, lookup_in(configuration, trace))
    judged_as = configuration if on else switched_on(feature, configuration)
    known = lookup_in(judged_as, trace)
    found = []
    for row in rows().values():
        if row.feature == feature.id:
            missing = tuple(sorted(key for key in row.keys() if not known(key)[0]))  # noqa: SIM118  # no mapping
            judged = row.checked(known)
            found.append(Judged(judged, row.level, missing if judged.status == "unknown" else ()))
    return FeatureCheck(feature.id, feature.title, on, tuple(found))


def layout_of(configuration: RunConfiguration, trace: TraceFacts) -> Folding | None:
    """The folded layout; `None` where GPUs, TP or PP are unknown. What else is unset is 1.

    Raises:
        LayoutError: the layout cannot be.
    """
    known = lookup_in(configuration, trace)

    def size(name: str) -> int | None:
        value = known(name)[1]
        return value if isinstance(value, int) else None

    gpus, tensor, pipeline = (
        size(name) for name in ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")
    )
    if gpus is None or tensor is None or pipeline is None:
        return None
    sizes = Sizes(
        tensor=tensor,
        pipeline=pipeline,
        context=size("context_parallel_size") or 1,
        expert=size("expert_model_parallel_size") or 1,
        expert_tensor=size("expert_tensor_parallel_size") or 1,
    )
    found = folding(sizes, gpus, size("num_moe_experts"))
    batch, micro = size("global_batch_size"), size("micro_batch_size")
    if batch is not None and micro is not None and batch % (micro * found.data):
        raise LayoutError(
            f"global_batch_size {batch} — is no multiple of micro_batch_size x DP = {micro} x {found.data}"
            " — mend the sizes"
        )
    return found
