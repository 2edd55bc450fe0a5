"""The charts of the report, as SVG that is read on light and on dark pages."""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

GREY = "#808080"
COLOURS = ("#2f7ebc", "#d9822b", "#4b9b5f", "#9b59b6", "#b5544c")
mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "report",  # the same figures make the same file
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": GREY,
        "axes.labelcolor": GREY,
        "axes.edgecolor": GREY,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "legend.frameon": False,
    }
)

Series = dict[str, list[tuple[float, float]]]
"""Points of lines, by the name of the line."""


def lines(
    file: Path,
    series: Series,
    *,
    across: str,
    up: str,
    logarithmic: bool = False,
    in_pairs: bool = False,
) -> None:
    """Draw lines over a logarithmic axis.

    Args:
        file: where to.
        series: the lines.
        across: what the horizontal axis tells.
        up: what the vertical axis tells.
        logarithmic: whether the vertical axis is logarithmic too.
        in_pairs: whether two lines that follow each other share a colour; the second is dashed.
    """
    figure, axes = pyplot.subplots(figsize=(7, 3.2))
    for number, (name, points) in enumerate(series.items()):
        look = {"color": COLOURS[number // 2 if in_pairs else number], "label": name}
        look["linestyle"] = "--" if in_pairs and number % 2 else "-"
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, **look)
    axes.set_xscale("log")
    _in_plain_numbers(axes.xaxis, steps=(1,))
    if logarithmic:
        axes.set_yscale("log")
        _in_plain_numbers(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, file)


def bars(
    file: Path,
    names: list[str],
    series: dict[str, list[float | None]],
    up: str,
    *,
    logarithmic: bool = False,
) -> None:
    """Draw groups of horizontal bars: one group a name, one bar a series; None is left out."""
    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.22 * len(names) * len(series)))
    height = 0.8 / len(series)
    for number, ((label, values), colour) in enumerate(zip(series.items(), COLOURS, strict=False)):
        at = [place + number * height for place, value in enumerate(values) if value is not None]
        drawn = [value for value in values if value is not None]
        axes.barh(at, drawn, height, label=label, color=colour)
        for place, value in zip(at, drawn, strict=True):
            axes.text(value, place, f" {value:,.4g}", va="center", fontsize=8)
    middle = 0.4 - height / 2
    axes.set_yticks([place + middle for place in range(len(names))], names)
    axes.invert_yaxis()
    if logarithmic:
        axes.set_xscale("log")
        _in_plain_numbers(axes.xaxis)
    axes.set_xlabel(up)
    axes.margins(x=0.1)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    _save(figure, file)


def _in_plain_numbers(axis: Axis, steps: tuple[int, ...] = (1, 2, 5)) -> None:
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _save(figure: pyplot.Figure, file: Path) -> None:
    figure.savefig(file, transparent=True, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
