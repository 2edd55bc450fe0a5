"""The charts of the report, as SVG that is read on light and on dark pages."""

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot
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
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(up)
    axes.margins(x=0.1)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(file, transparent=True, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
