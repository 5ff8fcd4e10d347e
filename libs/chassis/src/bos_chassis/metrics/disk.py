"""Free and total bytes of the file systems that hold a service's data, read at each scrape."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from prometheus_client.core import GaugeMetricFamily

from bos_chassis.metrics.shared import SharedMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

_LABELS = ("service", "store")


class DiskMetrics(SharedMetrics):
    """Disk space of data folders. Get it from :meth:`of`, and register folders by :meth:`watch`."""

    def __init__(self) -> None:
        self._folders: dict[tuple[str, str], str] = {}

    def watch(self, service: str, store: str, folder: Path | str) -> None:
        """Report the disk that holds ``folder``; a URL is watched if its scheme is ``file``.

        Args:
            service: Name of the service.
            store: Name of the data, such as ``index``; a constant of the code.
            folder: Path, or ``file://`` URL; any other URL has no disk here and is left out.
        """
        text = str(folder)
        if "://" in text:
            url = urlsplit(text)
            if url.scheme != "file":
                return
            text = unquote(url.path)
        self._folders[service, store] = text

    def collect(self) -> Iterator[Metric]:
        """Samples of all folders that can be read now."""
        free, size = _families()
        for labels, folder in list(self._folders.items()):
            try:
                usage = shutil.disk_usage(folder)
            except OSError:
                continue  # not made yet, or unmounted: the alert is on the missing series
            free.add_metric(labels, usage.free)
            size.add_metric(labels, usage.total)
        yield free
        yield size

    def describe(self) -> Iterator[Metric]:
        """All names."""
        yield from _families()


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily(
            "bos_disk_free_bytes", "Free bytes of the disk that holds a data folder", labels=_LABELS
        ),
        GaugeMetricFamily(
            "bos_disk_size_bytes", "Size of the disk that holds a data folder", labels=_LABELS
        ),
    )
