"""Files and charts of a run, as listed at the end of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from bos_client.text import files_of, one_line, size_text

if TYPE_CHECKING:
    from rich.console import Console

    from bos.gateway.v1 import OrchestratorResponse

_MAX_CHARTS = 20


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
