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
    timeout_s: float = Field(default=10.0, gt=0, le=300, description="Time limit of one program")
    memory_bytes: int = Field(default=128 * MIB, ge=MIB, description="Memory limit of one program")
    output_bytes: int = Field(default=64 * 1024, ge=0, description="Output limit of one program")
    result_bytes: int = Field(
        default=MIB, ge=1024, description="Approximate size limit of a result"
    )
    max_recursion: int = Field(default=500, ge=10, le=1000, description="Recursion limit")
    max_code_bytes: int = Field(
        default=16 * 1024, ge=256, description="Source size limit of one program"
    )
    warm_workers: int = Field(default=2, ge=1, le=64, description="Workers started in advance")
    max_workers: int = Field(
        default=5,
        ge=1,
        le=64,
        description="Maximum concurrent programs; one user may have all but one",
    )
    queue_timeout_s: float = Field(default=5.0, gt=0, description="Timeout for a free worker")
    kill_grace_s: float = Field(
        default=0.5, gt=0, description="Grace period after the time limit before a worker is killed"
    )
    runs_per_worker: int = Field(
        default=500, ge=1, description="Programs per worker before it is replaced"
    )

    process_enabled: bool = Field(
        default=True, description="Offer the process tier, where the kernel allows it"
    )
    process_warm_workers: int = Field(
        default=1, ge=0, le=64, description="Prestarted isolated interpreters with numpy and pandas"
    )
    process_max_workers: int = Field(
        default=3,
        ge=1,
        le=64,
        description="Maximum concurrent isolated programs; one user may have all but one",
    )
    process_start_timeout_s: float = Field(
        default=15.0, gt=0, description="Start timeout of an isolated interpreter"
    )
    process_disk_bytes: int = Field(
        default=16 * MIB,
        ge=64 * 1024,
        description="Size limit of an isolated program's folder, in memory",
    )
    process_max_files: int = Field(
        default=500, ge=1, description="Maximum files and folders of one isolated program"
    )
    process_open_files: int = Field(
        default=64, ge=16, le=1024, description="Maximum open files of one isolated program"
    )
    process_threads: int = Field(
        default=16, ge=1, le=256, description="Maximum threads of one isolated program"
    )
    process_cache_dir: Path | None = Field(
        default=None,
        description="Cache folder for the files that make up the isolated interpreter; unset: the "
        "user's cache folder",
    )
    process_bwrap: Path | None = Field(
        default=None, description="Path of bubblewrap; unset: the bundled one"
    )
