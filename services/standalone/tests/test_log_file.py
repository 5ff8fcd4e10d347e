"""A log file that anonymous callers make long does not fill the disk."""

import threading
from pathlib import Path

import pytest

from bos_standalone.data_folder import LOG_FILE, LogFile, open_log

LINE = "x" * 99


@pytest.mark.security
def test_log_is_rotated_while_written_and_one_old_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with LogFile(path, rotate_bytes=1000) as log:
        for number in range(100):
            print(LINE, number % 10, file=log, flush=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1"]
    for each in tmp_path.iterdir():
        assert each.stat().st_size <= 1000 + len(LINE) + 3
        assert each.stat().st_mode & 0o777 == 0o600
        # Whole lines: a file begins and ends with one.
        assert all(line.startswith(LINE) for line in each.read_text().splitlines())
        assert each.read_text().endswith("\n")


def test_lines_of_threads_are_all_there_and_whole(tmp_path: Path) -> None:
    def write(log: LogFile, name: str) -> None:
        for _ in range(200):
            log.write(f"{name * 99}\n")

    with LogFile(tmp_path / "log", rotate_bytes=50_000) as log:
        threads = [threading.Thread(target=write, args=(log, name)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = [line for each in tmp_path.iterdir() for line in each.read_text().splitlines()]
    assert sorted(lines) == sorted(name * 99 for name in "abc" for _ in range(200))


def test_log_is_appended_to_and_a_large_one_rotated_first(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with open_log(tmp_path) as log:
            print(text, file=log)
    file = tmp_path / LOG_FILE
    assert file.read_text() == "first\nsecond\n"
    with file.open("a") as large:
        large.truncate(9 * 1024 * 1024)
    with open_log(tmp_path) as log:
        print("third", file=log)
    assert file.read_text() == "third\n"


def test_what_cannot_be_written_fails_no_caller(tmp_path: Path) -> None:
    with LogFile(tmp_path / "log", rotate_bytes=10) as log:
        print("ü\udc80", file=log)  # half a character becomes a question mark
        print("long enough", file=log)
        (tmp_path / "log.1").mkdir()  # so that the next rotation fails
        print("lost", file=log)
        (tmp_path / "log.1").rmdir()
        print("kept", file=log)
    assert (tmp_path / "log").read_text() == "kept\n"
    assert (tmp_path / "log.1").read_text() == "ü?\nlong enough\n"
