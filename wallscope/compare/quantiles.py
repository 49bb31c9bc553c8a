"""Quantiles of Student's t, for intervals of few steps."""

from math import expm1, pi, sqrt, tan
from statistics import NormalDist


def normal(probability: float) -> float:
    """The quantile of the normal distribution.

    >>> round(normal(0.975), 4)
    1.96
    """
    return NormalDist().inv_cdf(probability)


def student(probability: float, freedom: float) -> float:
    """The quantile of Student's t above the median, also of broken degrees of freedom, not below 1.

    Hill's expansion (Communications of the ACM 13, 1970, algorithm 396).

    >>> [round(student(0.975, freedom), 3) for freedom in (1, 2, 5, 30)]
    [12.706, 4.303, 2.571, 2.042]
    """
    tails = 2 * (1 - probability)
    n = max(freedom, 1.0)
    if n == 1:
        return 1 / tan(tails * pi / 2)
    if n == 2:
        return sqrt(2 / (tails * (2 - tails)) - 2)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * pi / 2) * n
    y = (d * tails) ** (2 / n)
    if y > 0.05 + a:
        x = normal(tails / 2)
        y = x * x
        if n < 5:
            c += 0.3 * (n - 4.5) * (x + 0.6)
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
        y = expm1(a * y * y)
    else:
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (
            n + 1
        ) / (n + 2) + 1 / y
    return sqrt(n * y)
