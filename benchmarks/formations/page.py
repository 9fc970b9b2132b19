"""Writes ``docs/results/formations.md`` and its plots from what ``run_formations.py`` found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["write_page"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "formations.md"
IMAGES = ROOT / "docs" / "images"
PROSE = Path(__file__).with_name("page.md")

Row = Mapping[str, Any]
PAPER_RATIO = 2.1
TITLES = {"pi0": "pi0", "pi05": "pi0.5", "smolvla": "SmolVLA", "groot-n1.7": "GR00T N1.7"} | {
    "xr0": "XR0"
}


def write_page(cells: Sequence[Any], rows: Mapping[str, Row]) -> None:
    """Fill the tables into the prose; a table none of whose cells is measured says so."""
    parts: dict[str, list[Row]] = {}
    for cell in cells:
        if cell.key in rows:
            parts.setdefault(cell.part, []).append(rows[cell.key])
    text = PROSE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        found = table(parts.get(name, [])) if parts.get(name) else "*Not run yet.*"
        text = text.replace(f"<!-- {name} -->", found)
    text = text.replace("<!-- count -->", f"{len({c.key for c in cells} & rows.keys())}")
    text = text.replace("<!-- total -->", f"{len({c.key for c in cells})}")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    _draw(parts)


def _rule(row: Row) -> str:
    """Name of a formation with its options."""
    said = [f"{name.replace('_', ' ')} {value}" for name, value in row["options"]]
    return f"{row['formation'].replace('_', ' ')}{', ' if said else ''}{', '.join(said)}"


def _table(head: Sequence[str], body: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _model(row: Row) -> str:
    return TITLES[row["models"][0][0]]


def _slo(row: Row) -> float:
    return row["models"][0][1]


def _paper(rows: Sequence[Row]) -> str:
    """Every rule on the paper's GPU, by both criteria, and what is left of it in overload."""
    base = {_model(r): r["robots_by_mean_per_gpu"] for r in rows if _rule(r) == "lockstep"}
    body = [
        [
            _model(row),
            _rule(row),
            f"{row['robots_per_gpu']:g}",
            f"{row['robots_by_mean_per_gpu']:g}",
            _ratio(base.get(_model(row), 0), row["robots_by_mean_per_gpu"]),
            f"{row['prefix_limit']}, {row['denoise_limit']}",
            *(f"{row['overload'].get(p, 0) / row['gpus']:.1f}" for p in ("150", "200")),
        ]
        for row in rows
    ]
    head = ["model", "rule", "robots per GPU", "by mean", "lockstep over it", "batch limits"]
    return _table([*head, "robots' worth at 150 %", "at 200 %"], body)


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else "-"


def _limits(rows: Sequence[Row]) -> str:
    rules = list(dict.fromkeys(map(_rule, rows)))
    by_limit: dict[int, dict[str, float]] = {}
    for row in rows:
        by_limit.setdefault(row["limits"][0], {})[_rule(row)] = row["robots_by_mean_per_gpu"]
    body = [
        [limit, *(f"{by.get(rule, 0):g}" for rule in rules), _ratio(by["lockstep"], by[rules[0]])]
        for limit, by in by_limit.items()
        if "lockstep" in by and rules[0] in by
    ]
    return _table(["largest prefix batch", *rules, "lockstep over monolithic"], body)


def _inspection(rows: Sequence[Row]) -> str:
    found = {(dict(r["options"])["devices"], dict(r["options"])["inspection_ms"]): r for r in rows}
    costs = sorted({cost for _, cost in found})
    body = [
        [f"{devices} GPU", *(f"{found[devices, c]['robots_by_mean_per_gpu']:g}" for c in costs)]
        for devices in sorted({devices for devices, _ in found})
    ]
    return _table(["step admission on", *(f"{cost:g} ms" for cost in costs)], body)


def _interference(rows: Sequence[Row]) -> str:
    rules = list(dict.fromkeys(map(_rule, rows)))
    found = {(_slo(r), r["interference"], _rule(r)): r["robots_per_gpu"] for r in rows}
    body: list[list[object]] = []
    for slo, interference in dict.fromkeys((_slo(r), r["interference"]) for r in rows):
        robots = [found.get((slo, interference, rule), 0) for rule in rules]
        base = found.get((slo, interference, "lockstep"), 0)
        body.append(
            [
                f"{slo:g} ms",
                interference,
                *(f"{n:g} ({_ratio(n, base)})" if base else f"{n:g}" for n in robots),
            ]
        )
    return _table(["slo", "interference", *rules], body)


def _gathering(rows: Sequence[Row]) -> str:
    found = {
        (r["formation"], _slo(r), dict(r["options"])["gathering"]): r["robots_per_gpu"]
        for r in rows
    }
    sizes = sorted({rows for _, _, rows in found})
    body = [
        [formation, f"{slo:g} ms", *(f"{found.get((formation, slo, n), 0):g}" for n in sizes)]
        for formation, slo in dict.fromkeys((f, s) for f, s, _ in found)
    ]
    return _table(["formation", "slo", *(f"{n} rows" for n in sizes)], body)


def _disciplines(rows: Sequence[Row]) -> str:
    rules = list(dict.fromkeys(map(_rule, rows)))
    found = {(r["discipline"], _rule(r)): r["robots_per_gpu"] for r in rows}
    body = [
        [f"`{discipline}`", *(f"{found.get((discipline, rule), 0):g}" for rule in rules)]
        for discipline in dict.fromkeys(r["discipline"] for r in rows)
    ]
    return _table(["discipline", *rules], body)


def _devices(rows: Sequence[Row]) -> str:
    rules = list(dict.fromkeys(map(_rule, rows)))
    found = {(r["device"], _model(r), _rule(r)): r for r in rows}
    body: list[list[object]] = []
    for device, model in dict.fromkeys((r["device"], _model(r)) for r in rows):
        slo = next(_slo(r) for r in rows if (r["device"], _model(r)) == (device, model))
        cells = [found.get((device, model, rule)) for rule in rules]
        shown = ["-" if c is None else f"{c['robots']} ({c['robots_by_mean']})" for c in cells]
        body.append([device, model, f"{slo:g} ms", *shown])
    return _table(["GPU", "model", "slo", *rules], body)


def _skipping(rows: Sequence[Row]) -> str:
    found = {(r["device"], _model(r), r["skips"]): r["robots_per_gpu"] for r in rows}
    body = [
        [d, m, f"{plain:g}", f"{skipped:g}", _ratio(skipped, plain)]
        for d, m in dict.fromkeys((d, m) for d, m, _ in found)
        for plain, skipped in [(found.get((d, m, False), 0), found.get((d, m, True), 0))]
    ]
    return _table(["GPU", "model", "all computed", "masked and padding skipped", "ratio"], body)


def _co_location(rows: Sequence[Row]) -> str:
    """One table of miss rates per case, and where the paper's ratio lies."""
    cases: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for row in rows:
        curve = {population: rate for population, rate, _ in row["misses"]}
        cases.setdefault((_loaded(row), row["gpus"]), {})[row["formation"]] = curve
    return "\n\n".join(
        f"{_case(loaded, gpus)} {_where_it_appears(curves)}\n\n{_rates(curves)}"
        for (loaded, gpus), curves in cases.items()
        if len(curves) > 1
    )


def _case(loaded: str, gpus: int) -> str:
    return f"{loaded}, on {f'{gpus} GPUs' if gpus > 1 else 'one GPU'}."


def _rates(curves: Mapping[str, Mapping[int, float]]) -> str:
    monolithic, lockstep = curves["monolithic"], curves["lockstep"]
    body = [
        [
            population,
            f"{rate:.2%}",
            f"{lockstep[population]:.2%}",
            _ratio(rate, lockstep[population]),
        ]
        for population, rate in monolithic.items()
    ]
    return _table(["robots", "monolithic misses", "lockstep misses", "ratio"], body)


def _where_it_appears(curves: Mapping[str, Mapping[int, float]]) -> str:
    """Between which populations the ratio of miss rates passes that of the paper."""
    monolithic, lockstep = curves["monolithic"], curves["lockstep"]
    ratios = {n: monolithic[n] / lockstep[n] for n in monolithic if lockstep[n]}
    passes = [
        f"{low} and {high}"
        for low, high in pairwise(ratios)
        if min(ratios[low], ratios[high]) <= PAPER_RATIO <= max(ratios[low], ratios[high])
    ]
    if passes:
        return (
            f"The paper's {PAPER_RATIO} lies between {' robots, and between '.join(passes)} robots."
        )
    return f"Nowhere here {PAPER_RATIO}: {min(ratios.values()):.1f} to {max(ratios.values()):.1f}."


def _placement(rows: Sequence[Row]) -> str:
    found = {(_loaded(row), row["shares_gpus"]): row for row in rows}
    body: list[list[object]] = []
    for loaded in dict.fromkeys(map(_loaded, rows)):
        own, shared = found.get((loaded, False)), found.get((loaded, True))
        if own is None or shared is None:
            continue
        robots = [f"{row['robots']} ({row['robots_by_mean']})" for row in (own, shared)]
        body.append([loaded, *robots, _ratio(shared["robots"], own["robots"])])
    return _table(
        ["models, 4 GPUs", "one model per GPU", "every model on every GPU", "ratio"], body
    )


def _loaded(row: Row) -> str:
    """Models of a row, those of one architecture together."""
    parts: dict[str, list[int]] = {}
    for name, part in row["loaded"]:
        parts.setdefault(name, []).append(part)
    said = [
        f"{len(each)} x {TITLES[name]}" if len(each) > 1 else TITLES[name]
        for name, each in parts.items()
    ]
    uneven = [part for _, part in row["loaded"]]
    ratio = f", {':'.join(map(str, uneven))}" if len(set(uneven)) > 1 else ""
    return f"{', '.join(said)}{ratio}"


TABLES = {
    "co_location": _co_location,
    "placement": _placement,
    "paper": _paper,
    "limits": _limits,
    "inspection": _inspection,
    "interference": _interference,
    "gathering": _gathering,
    "disciplines": _disciplines,
    "formations": _devices,
    "skipping": _skipping,
    "tighter": _devices,
}


def _draw(parts: Mapping[str, Sequence[Row]]) -> None:
    """One plot of every rule, one of the ratios over interference."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "takt", "svg.fonttype": "none", "font.size": 9}):
        rules = [row for row in parts.get("paper", []) if _model(row) == "pi0"]
        if rules:
            _bars(rules, IMAGES / "formations.svg")
        if parts.get("interference"):
            _lines(parts["interference"], IMAGES / "formations-interference.svg")


def _bars(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    ordered = sorted(rows, key=lambda row: row["robots_per_gpu"])
    robots = [row["robots_per_gpu"] for row in ordered]
    bars = axes.barh([_rule(row) for row in ordered], robots, color="#0b5cad")
    axes.bar_label(bars, fmt="%g", padding=3)
    axes.set(xlabel="robots per GPU at 98 % (simulated)")
    axes.set_title("pi0 on RTX PRO 6000, slo 156 ms, 2 Hz: simulated", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def _lines(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    slos = list(dict.fromkeys(map(_slo, rows)))
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    panels = figure.subplots(1, len(slos), sharey=True, squeeze=False)[0]
    colours = ("#6b7280", "#c2410c", "#0b5cad", "#009e73")
    for axes, slo in zip(panels, slos, strict=True):
        for rule, colour in zip(dict.fromkeys(map(_rule, rows)), colours, strict=False):
            here = [row for row in rows if _slo(row) == slo and _rule(row) == rule]
            x = [row["interference"] for row in here]
            y = [row["robots_per_gpu"] for row in here]
            axes.plot(x, y, "o-", color=colour, label=rule, linewidth=1.4, markersize=4)
        axes.set(title=f"slo {slo:g} ms", xlabel="interference", ylim=(0, None))
        axes.grid(color="#e5e7eb", linewidth=0.6)
    panels[0].set_ylabel("robots per GPU at 98 %")
    handles, labels = panels[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("pi0 on RTX PRO 6000 over assumed interference (simulated)", fontsize=10)
    figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")
