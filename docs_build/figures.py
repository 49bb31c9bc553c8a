"""Figures of the documentation, drawn from the numbers that the pages state.

python -m docs_build.figures docs/images
"""

import argparse
from pathlib import Path

_LANES = ("Python thread", "compute stream", "communication stream", "copy stream")
_LANE_HEIGHT, _TOP, _LEFT, _US = 46, 34, 170, 4.6
_STYLE = 'role="img" font-family="sans-serif" font-size="13"'
_GAP = 'fill="#f1f3f5"'
_COLORS = {"compute": "#0072B2", "communication": "#E69F00", "memory": "#CC79A7", "host": "#009E73"}
_SPANS = (  # lane, begin and end in µs, wall, label
    (1, -30, 0, "compute", "kernel A"),
    (0, -22, 0, "host", "synchronize"),
    (0, 0, 45, "host", "Python (queue is empty)"),
    (0, 45, 55, "host", "launch"),
    (2, 60, 100, "communication", "all-to-all"),
    (3, 20, 70, "memory", "copy (nothing waits for it)"),
    (1, 100, 130, "compute", "kernel B"),
)
_CHAIN = ((0, 45, "45 µs"), (45, 55, "10 µs"), (55, 60, "5"), (60, 100, "40 µs"))


def draw_blame_chain() -> str:
    """Return the figure of one gap and the chain that fills it, as SVG."""
    width, height = _x(135) + 10, _TOP + _LANE_HEIGHT * 4 + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" {_STYLE}>',
        "<title>A gap between two kernels and the chain that fills it</title>",
        f'<rect width="{width:.0f}" height="{height}" fill="#ffffff"/>',
        f'<rect x="{_x(0):.0f}" y="{_TOP - 8}" width="{100 * _US:.0f}" height="{_LANE_HEIGHT * 4}" {_GAP}/>',
        _text(_x(50), 18, "gap: 100 µs without a compute kernel", '"#222"'),
    ]
    for lane, name in enumerate(_LANES):
        parts.append(f'<text x="8" y="{_TOP + _LANE_HEIGHT * lane + 21}" fill="#222">{name}</text>')
    for lane, begin, end, wall, label in _SPANS:
        x, y = _x(begin), _TOP + _LANE_HEIGHT * lane
        wide = (end - begin) * _US
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="30" rx="3" fill="{_COLORS[wall]}"/>'
        )
        parts.append(_text(x + wide / 2, y + 20, label, '"#fff" font-size="11"'))
    y = _TOP + _LANE_HEIGHT * 4 + 16
    parts.append(f'<text x="8" y="{y + 17}" fill="#222">blame chain</text>')
    for (begin, end, label), wall in zip(_CHAIN, ("host", "host", "host", "communication"), strict=True):
        parts.append(
            f'<rect x="{_x(begin):.1f}" y="{y}" width="{(end - begin) * _US:.1f}" height="24" fill="none"'
            f' stroke="{_COLORS[wall]}" stroke-width="2"/>'
        )
        parts.append(_text(_x((begin + end) / 2), y + 17, label, '"#222" font-size="11"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, label: str, fill: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.0f}" text-anchor="middle" fill={fill}>{label}</text>'


def _x(time_us: float) -> float:
    return _LEFT + (time_us + 30) * _US


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m docs_build.figures", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the figures go")
    (parser.parse_args().folder / "blame-chain.svg").write_text(draw_blame_chain(), encoding="utf-8")
