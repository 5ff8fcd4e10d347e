"""Files of a run: which there are, and how they are named at the end of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from bos_client.render.text import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from bos.common.v1 import Artefact
    from bos.gateway.v1 import OrchestratorResponse

_KIB = 1024
_MAX_CHARTS = 20


def files_of(response: OrchestratorResponse) -> list[Artefact]:
    """The files that the steps of a run made, in planner order, each once."""
    found = {
        (file.name, file.digest): file for result in response.agent_results for file in result.files
    }
    return list(found.values())


def show_charts(console: Console, response: OrchestratorResponse) -> None:
    """Titles of the charts with the names of their pictures; nothing if there are none."""
    if not response.charts:
        return
    console.print(Text("\nCharts", style="bold"))
    for chart in response.charts[:_MAX_CHARTS]:
        names = ", ".join(one_line(image.name) for image in chart.images)
        about = f"{one_line(chart.title)} ({one_line(chart.type)})"
        console.print(Text(f"  - {about}" + (f": {names}" if names else "")))


def show_files(console: Console, response: OrchestratorResponse) -> None:
    """The names of the files, and how to get them; nothing if there are none."""
    listed = files_of(response)
    if not listed:
        return
    console.print(Text("\nFiles", style="bold"))
    for file in listed:
        console.print(Text(f"  - {one_line(file.name)} ({size_text(file.size_bytes)})"))
    console.print(Text(f"  bos runs files {response.run_id} --output .", style="dim"))


def size_text(size_bytes: int) -> str:
    """A size for people."""
    if size_bytes < _KIB:
        return f"{size_bytes} bytes"
    if size_bytes < _KIB * _KIB:
        return f"{size_bytes / _KIB:.1f} KiB"
    return f"{size_bytes / _KIB / _KIB:.1f} MiB"
