"""Parallel folding: whether attention and experts can both be divided over so many GPUs."""

from wallscope.errors import LayoutError
from wallscope.model.advice import Folding, Sizes


def folding(sizes: Sizes, gpus: int, experts: int | None = None) -> Folding:
    """Divide the GPUs by both meshes.

    >>> folded = folding(Sizes(tensor=4, pipeline=4, context=2, expert=64), 256, experts=256)
    >>> folded.data, folded.expert_data
    (8, 1)

    Raises:
        LayoutError: there are too few GPUs, or something does not divide.
    """
    said = f"TP{sizes.tensor} CP{sizes.context} PP{sizes.pipeline} EP{sizes.expert} ETP{sizes.expert_tensor}"
    if gpus < sizes.fewest_gpus:
        raise LayoutError(
            f"{said} on {gpus} GPUs — needs PP x max(TP x CP, EP x ETP) = {sizes.pipeline} x "
            f"max({sizes.attention}, {sizes.experts}) = {sizes.fewest_gpus} — lower a size or add GPUs"
        )
    for name, mesh in (("TP x CP", sizes.attention), ("EP x ETP", sizes.experts)):
        if gpus % (mesh * sizes.pipeline):
            raise LayoutError(
                f"{said} — {gpus} do not divide by PP x {name} = {mesh * sizes.pipeline} — change a size"
            )
    if experts is not None and experts % sizes.expert:
        raise LayoutError(f"{said} — {experts} experts are not divided by EP {sizes.expert} — change EP")
    stages = sizes.pipeline
    fewest = sizes.fewest_gpus
    return Folding(sizes, gpus, fewest, gpus // (sizes.attention * stages), gpus // (sizes.experts * stages))
