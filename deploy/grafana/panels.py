"""Dashboards as Grafana's JSON model, from few words: panels of queries, two or four in a row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 39
TAG = "bos"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTHS = {"stat": 6, "timeseries": 12, "table": 12}
_HEIGHTS = {"stat": 4, "timeseries": 8, "table": 8}
_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression of a panel."""

    expr: str
    legend: str = ""
    exemplars: bool = False
    """Show trace ids beside the line; of histograms."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    description: str
    """What it shows, and what to look at when it is not as usual."""
    unit: str
    """Grafana's id of the unit."""
    queries: tuple[Query, ...]
    kind: Literal["stat", "timeseries", "table"] = "timeseries"
    most: float | None = None
    """Value from which on it is red."""
    least: float | None = None
    """Value below which it is red."""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading, and the panels below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard."""

    name: str
    """File and id."""
    title: str
    description: str
    rows: tuple[Row, ...] = field(default=())

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, top to bottom."""
        return tuple(panel for row in self.rows for panel in row.panels)


def model(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in dashboard.rows:
        place = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
        panels.append(_numbered(panels, {"type": "row", "title": row.title, "gridPos": place}))
        y += 1
        x = height = 0
        for panel in row.panels:
            width = _WIDTHS[panel.kind]
            if x + width > _COLUMNS:
                x, y, height = 0, y + height, 0
            height = max(height, _HEIGHTS[panel.kind])
            place = {"x": x, "y": y, "w": width, "h": _HEIGHTS[panel.kind]}
            panels.append(_numbered(panels, {**_panel(panel), "gridPos": place}))
            x += width
        y += height
    return {
        "uid": f"bos-{dashboard.name}",
        "title": f"Bos / {dashboard.title}",
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "utc",
        "links": [_links()],
        "templating": {"list": [_datasource()]},
        "panels": panels,
    }


def _numbered(before: list[dict[str, Any]], panel: dict[str, Any]) -> dict[str, Any]:
    return {"id": len(before) + 1, **panel}


def _panel(panel: Panel) -> dict[str, Any]:
    instant = panel.kind != "timeseries"
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    steps = _steps(panel)
    if steps:
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["color"] = {"mode": "thresholds" if instant else "palette-classic"}
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": instant,
            "range": not instant,
            "exemplar": query.exemplars,
            **({"format": "table"} if panel.kind == "table" else {}),
        }
        for place, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel.kind),
        "targets": targets,
    }


def _steps(panel: Panel) -> list[dict[str, Any]]:
    if panel.most is not None:
        return [{"color": "green", "value": None}, {"color": "red", "value": panel.most}]
    if panel.least is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.least}]
    return []


def _options(kind: str) -> dict[str, Any]:
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "area"}
    if kind == "table":
        return {"showHeader": True}
    legend = {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"]}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _datasource() -> dict[str, Any]:
    names = {"name": "datasource", "label": "Prometheus"}
    return {**names, "type": "datasource", "query": "prometheus"}


def _links() -> dict[str, Any]:
    return {"type": "dashboards", "title": "Bos", "tags": [TAG], "asDropdown": True}


def quantile(share: float, metric: str, by: str = "", where: str = "") -> str:
    """PromQL of a quantile of a histogram, by further labels."""
    labels = f"le, {by}" if by else "le"
    rate = f"rate({metric}_bucket{where and '{' + where + '}'}[$__rate_interval])"
    return f"histogram_quantile({share:g}, sum by ({labels}) ({rate}))"


def rate(metric: str, by: str = "", where: str = "") -> str:
    """PromQL of the rate per second of a counter, summed by labels."""
    inner = f"rate({metric}{where and '{' + where + '}'}[$__rate_interval])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def increase(metric: str, by: str = "", where: str = "") -> str:
    """PromQL of what a counter grew by over the time that is shown, summed by labels."""
    inner = f"increase({metric}{where and '{' + where + '}'}[$__range])"
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"
