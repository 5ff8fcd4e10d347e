"""Files that steps send and get: bounds, names, and the memory that they share."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from bos.agent.v1 import FileChunk, InputFile
from bos_artefacts import Artefact, Owner, open_artefacts
from bos_errors import ResourceExhausted, Unavailable
from bos_gateway.effects.input_files import InputFiles
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_gateway.effects.step_files import MAX_FILE_BYTES, StepFiles
from bos_gateway.run_log.run_files import RunFiles

MIB = 1024 * 1024
REPORT = b"%PDF-1.7 " + bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artefacts"


def sent(files: StepFiles, name: str, size: int, *, parts: int = 1, last: bool = True) -> None:
    for number in range(parts):
        files.take(
            FileChunk(
                name="" if number else name,
                media_type="text/plain",
                content=bytes(size // parts),
                last=last and number == parts - 1,
            )
        )


class Stored(RunFiles):
    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self._folder = open_artefacts(folder.as_uri())

    async def keep(self, owner: Owner, content: bytes) -> Artefact:
        return await self._folder.put(owner, content)


async def kept(files: StepFiles, folder: Path) -> tuple[list[str], list[str]]:
    stored, problems = await files.store(Owner("ada", uuid4()), Stored(folder), 10)
    return [file.name for file in stored], problems


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([MAX_FILE_BYTES + 2], []),
        ([MAX_FILE_BYTES, 2 * MIB + 2, 10], ["0", "2"]),
        ([1] * 17, [str(n) for n in range(16)]),
    ],
)
async def test_bounds_of_files_hold_one_by_one_and_together(
    folder: Path, sizes: list[int], names: list[str]
) -> None:
    files = StepFiles(MemoryBudget(64 * MIB))
    for number, size in enumerate(sizes):
        sent(files, str(number), size, parts=2 if size > 1 else 1)
    found, problems = await kept(files, folder)
    assert found == names
    assert len(problems) == len(sizes) - len(names)


async def test_names_that_lead_elsewhere_are_not_kept(folder: Path) -> None:
    files = StepFiles(MemoryBudget(64 * MIB))
    names = ["", ".", "..", "a/b", "a\\b", "a\nb", "\u202ea", "x" * 256]
    for name in (*names, "good.txt"):
        sent(files, name, 1)
    found, problems = await kept(files, folder)
    assert found == ["good.txt"]
    assert len(problems) == len(names)
    assert all(problem.isprintable() for problem in problems)


async def test_a_file_that_does_not_arrive_whole_is_not_kept(folder: Path) -> None:
    files = StepFiles(MemoryBudget(64 * MIB))
    sent(files, "whole.txt", 10)
    sent(files, "half.txt", 10, last=False)
    assert await kept(files, folder) == (
        ["whole.txt"],
        ["The file half.txt was not kept: it did not arrive whole."],
    )


async def test_files_of_concurrent_steps_share_the_memory_limit(folder: Path) -> None:
    room = MemoryBudget(3 * MIB)
    first, second = StepFiles(room), StepFiles(room)
    sent(first, "first", 2 * MIB)
    sent(second, "too much", 2 * MIB)
    sent(second, "small", MIB)
    assert await kept(second, folder) == (
        ["small"],
        ["The file too much was not kept: the service holds too many files at the moment."],
    )
    assert room.held == 3 * MIB
    del second
    assert room.held == 2 * MIB
    del first
    assert room.held == 0


async def test_input_files_respect_the_memory_limit_and_are_freed(folder: Path) -> None:
    owner = Owner("ada", UUID(int=1))
    store = open_artefacts(folder.as_uri())
    blob = await store.put(owner, REPORT)
    listed = [InputFile(name="a", digest=f"sha256:{blob.digest}", size_bytes=len(REPORT))]
    small, large = MemoryBudget(len(REPORT) - 1), MemoryBudget(len(REPORT))
    with pytest.raises(ResourceExhausted):
        await InputFiles(small).read(listed, owner, RunFiles(store), max_bytes=10**6, timeout_s=30)
    files = InputFiles(large)
    with pytest.raises(Unavailable):
        await files.read(listed, owner, RunFiles(None), max_bytes=10**6, timeout_s=30)
    assert large.held == 0
    await files.read(listed, owner, RunFiles(store), max_bytes=10**6, timeout_s=30)
    assert (large.held, files.read_files[0].content) == (len(REPORT), REPORT)
    del files
    assert large.held == 0
