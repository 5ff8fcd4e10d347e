from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import ServerSettings, Settings

MIB = 1024 * 1024


class SandboxSettings(Settings):
    """Limits of one program and size of the worker pool. A request can lower limits, never raise.

    Durations are in seconds, sizes in bytes.
    """

    model_config = SettingsConfigDict(env_prefix="BOS_SANDBOX_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    timeout_s: float = Field(default=10.0, gt=0, le=300, description="Time of one program")
    memory_bytes: int = Field(default=128 * MIB, ge=MIB, description="Memory of one program")
    output_bytes: int = Field(default=64 * 1024, ge=0, description="Printed output of one program")
    result_bytes: int = Field(default=MIB, ge=1024, description="Result of one program, roughly")
    max_recursion: int = Field(default=500, ge=10, le=1000, description="Calls inside one another")
    max_code_bytes: int = Field(default=16 * 1024, ge=256, description="Source of one program")
    warm_workers: int = Field(default=2, ge=1, le=64, description="Workers started in advance")
    max_workers: int = Field(
        default=5,
        ge=1,
        le=64,
        description="Programs that run at once; one user alone has all but one",
    )
    queue_timeout_s: float = Field(default=5.0, gt=0, description="Wait for a free worker")
    kill_grace_s: float = Field(
        default=0.5, gt=0, description="A worker that ignores the time limit is killed after this"
    )
    runs_per_worker: int = Field(default=500, ge=1, description="Then the worker is replaced")

    process_enabled: bool = Field(
        default=True, description="Offer the process tier, where the kernel allows it"
    )
    process_warm_workers: int = Field(
        default=1, ge=0, le=64, description="Isolated interpreters with numpy and pandas, waiting"
    )
    process_max_workers: int = Field(
        default=3,
        ge=1,
        le=64,
        description="Isolated programs that run at once; one user alone has all but one",
    )
    process_start_timeout_s: float = Field(
        default=15.0, gt=0, description="Time for an isolated interpreter to come up"
    )
    process_disk_bytes: int = Field(
        default=16 * MIB, ge=64 * 1024, description="Folder of one isolated program, in memory"
    )
    process_max_files: int = Field(
        default=500, ge=1, description="Files and folders of one isolated program"
    )
    process_open_files: int = Field(
        default=64, ge=16, le=1024, description="Files open at once in one isolated program"
    )
    process_threads: int = Field(
        default=16, ge=1, le=256, description="Threads of one isolated program"
    )
    process_bwrap: Path | None = Field(
        default=None, description="Another bubblewrap than the one that is installed along"
    )
