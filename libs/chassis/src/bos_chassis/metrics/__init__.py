"""Prometheus metrics of every service: RPCs, files, disks, labels, exemplars, exposition."""

from bos_chassis.metrics.disk import DiskMetrics
from bos_chassis.metrics.exemplars import current_exemplar, exemplar_of
from bos_chassis.metrics.exposition import metrics_server
from bos_chassis.metrics.labels import OTHER, BoundedLabel
from bos_chassis.metrics.shared import SharedMetrics
from bos_chassis.metrics.standard import FileMetrics, RpcMetrics

__all__ = [
    "OTHER",
    "BoundedLabel",
    "DiskMetrics",
    "FileMetrics",
    "RpcMetrics",
    "SharedMetrics",
    "current_exemplar",
    "exemplar_of",
    "metrics_server",
]
