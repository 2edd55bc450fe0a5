"""Draws a dashboard of Grafana from a Prometheus' data: its panels in their places."""

import datetime
import io
import math
import re
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator
from PIL import Image
from PIL.PngImagePlugin import PngInfo

WIDTH, HEAD, UNIT, GAP = 1240, 64, 27, 8
"""Pixels: the picture's width, its head's height, a unit of `gridPos`, the gap of two panels."""
SCALE = 1.45
TEXT, FAINT, LINE, CANVAS = "#24292e", "#6e7680", "#e4e7ea", "#f3f5f7"
RED = "#d63649"
COLOURS = (
    *("#56a64b", "#f2a900", "#3274d9", "#e0752d", "#8f3bb8", "#18a0a8"),
    *("#c4489a", "#8a6d3b", "#607080", "#9ac05a", "#5b4fc4", "#b23a48"),
)
mpl.rcParams.update(
    {"font.family": "DejaVu Sans", "font.size": 7.4, "text.color": TEXT, "axes.linewidth": 0}
)

Points = list[tuple[float, float]]


class Picture:
    """A picture of a dashboard; outages are pairs of a first and a last second."""

    def __init__(
        self, dashboard: dict, start: float, end: float, outages: list[tuple[float, float]]
    ):
        self._dashboard, self._start, self._end = dashboard, start, end
        self._outages = outages
        places = [panel["gridPos"] for panel in dashboard["panels"]]
        rows = max(place["y"] + place["h"] for place in places)
        self._height = HEAD + rows * UNIT + GAP
        self._figure: Figure = pyplot.figure(
            figsize=(WIDTH / 100, self._height / 100), dpi=100 * SCALE, facecolor=CANVAS
        )

    def _text(self, x: float, y: float, text: str, **look: object) -> None:
        self._figure.text(x / WIDTH, 1 - y / self._height, text, va="center", **look)

    def head(self, outage: str) -> None:
        self._text(GAP + 4, 22, self._dashboard["title"], fontsize=12, fontweight="bold")
        self._text(GAP + 4, 46, "Data source: Prometheus     Job: All", color=FAINT, fontsize=8)
        self._text(WIDTH - GAP - 4, 22, f"■ {outage}", color=RED, ha="right", fontsize=8)
        self._text(
            *(WIDTH - GAP - 4, 46, "- - - limit of an alert"), color=RED, ha="right", fontsize=8
        )

    def panel(self, panel: dict, series: dict[str, Points]) -> None:
        place, defaults = panel["gridPos"], panel["fieldConfig"]["defaults"]
        left, top = place["x"] * WIDTH / 24 + GAP / 2, HEAD + place["y"] * UNIT
        width, height = place["w"] * WIDTH / 24 - GAP, place["h"] * UNIT - GAP
        box = (left / WIDTH, 1 - (top + height) / self._height)
        size = (width / WIDTH, height / self._height)
        frame = {"boxstyle": "square,pad=0", "facecolor": "white", "edgecolor": LINE, "zorder": -1}
        self._figure.patches.append(
            FancyBboxPatch(box, *size, **frame, transform=self._figure.transFigure)
        )
        self._text(left + 10, top + 15, panel["title"], fontsize=8.6, fontweight="bold")
        widest = max(map(len, series))
        columns = max(1, min(len(series), int((width - 20) / (5.2 * widest + 22))))
        legend = 15 * math.ceil(len(series) / columns)
        bottom = top + height - legend - 32
        axes = self._figure.add_axes(
            (
                (left + 58) / WIDTH,
                1 - bottom / self._height,
                (width - 72) / WIDTH,
                (bottom - top - 32) / self._height,
            ),
            facecolor="none",
        )
        custom = defaults["custom"]
        self._lines(
            axes, series, custom["fillOpacity"] / 100, custom["stacking"]["mode"] == "normal"
        )
        self._scale(axes, defaults)
        axes.legend(
            loc="lower left",
            bbox_to_anchor=((left + 6) / WIDTH, 1 - (top + height - 4) / self._height),
            bbox_transform=self._figure.transFigure,
            ncols=columns,
            frameon=False,
            handlelength=1.1,
            columnspacing=1.2,
            labelspacing=0.35,
            borderpad=0.2,
            handletextpad=0.5,
        )

    def _lines(
        self, axes: Axes, series: dict[str, Points], opacity: float, is_stacked: bool
    ) -> None:
        below: dict[float, float] = {}
        for (name, points), colour in zip(sorted(series.items()), COLOURS * 2, strict=False):
            times = [datetime.datetime.fromtimestamp(time, datetime.UTC) for time, _ in points]
            base = [below.get(time, 0.0) if is_stacked else 0.0 for time, _ in points]
            tops = [value + under for (_, value), under in zip(points, base, strict=True)]
            below.update(zip((time for time, _ in points), tops, strict=True))
            axes.plot(times, tops, color=colour, linewidth=1.3, label=name)
            axes.fill_between(times, base, tops, color=colour, alpha=opacity, linewidth=0)

    def _scale(self, axes: Axes, defaults: dict) -> None:
        moment = datetime.datetime.fromtimestamp
        utc = datetime.UTC
        axes.set_xlim(moment(self._start, utc), moment(self._end, utc))
        axes.set_ylim(bottom=0)
        steps = [step["value"] for step in defaults.get("thresholds", {}).get("steps", ())]
        for limit in steps:
            if limit is not None and limit <= axes.get_ylim()[1]:
                axes.axhline(limit, color=RED, linewidth=0.9, dashes=(4, 3))
        for start, end in self._outages:
            axes.axvspan(moment(start, utc), moment(end, utc), color=RED, alpha=0.09, linewidth=0)
        unit, top = defaults["unit"], axes.get_ylim()[1]
        axes.set_ylim(top=top * 1.06)
        axes.yaxis.set_major_locator(
            MultipleLocator(2 ** math.ceil(math.log2(top / 4)))
            if unit == "bytes"
            else MaxNLocator(4, integer=unit == "short")
        )
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: in_unit(value, unit)))
        first = math.ceil((self._start + 8) / 20) * 20
        axes.set_xticks([moment(at, utc) for at in range(first, int(self._end) - 8, 20)])
        axes.xaxis.set_major_formatter(mpl.dates.DateFormatter("%H:%M:%S"))
        axes.tick_params(length=0, colors=FAINT, labelsize=7)
        axes.grid(color=LINE, linewidth=0.7)
        axes.set_axisbelow(True)

    def save(self, file: Path, **notes: str) -> None:
        raw, info = io.BytesIO(), PngInfo()
        self._figure.savefig(raw, format="png", facecolor=CANVAS)
        pyplot.close(self._figure)
        for name, text in notes.items():
            info.add_text(name, text)
        image = Image.open(raw).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        image.save(file, optimize=True, pnginfo=info)


def in_unit(value: float, unit: str) -> str:
    """Return a value as Grafana shows it in a unit."""
    if unit == "s":
        factor, name = (1, "s") if value >= 1 or not value else (1000, "ms")
        return f"{value * factor:.4g} {name}"
    if unit == "bytes":
        return f"{value / 1024:.4g} KiB" if value >= 1024 else f"{value:.4g} B"
    return f"{value:.4g}{ {'reqps': ' req/s', 'ops': ' ops/s'}.get(unit, '') }"


def name_of(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)


def draw(data: dict, file: Path, **notes: str) -> None:
    outages = data["outages"]
    picture = Picture(data["dashboard"], data["start"], data["end"], outages)
    [(froze, resumed)] = outages
    picture.head(f"Redis frozen for {resumed - froze:.0f} s")
    for panel, series in zip(data["dashboard"]["panels"], data["series"], strict=True):
        picture.panel(panel, series)
    picture.save(file, **notes)
