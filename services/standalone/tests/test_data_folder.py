"""Data folder of a standalone: API key, connection file, keys, and a log that stays small."""

import json
import socket
import stat
import threading
from pathlib import Path

import pytest

from bos_client.connection import CONNECTION_FILE, NoConnection, find_connection
from bos_errors import ConfigurationError
from bos_gateway.key_ring import SecretsKeyRing
from bos_standalone.data_folder import LOG_FILE, LogFile, open_log, own_folder

LINE = "x" * 99


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_api_key_is_kept_and_read_from_standalone_json(
    tmp_path: Path,
) -> None:
    data = tmp_path / CONNECTION_FILE.parent
    with own_folder(data) as folder:
        key = folder.api_key
        assert not folder.announce(
            "127.0.0.1:4711",
            key,
            {"current_date": "2026-06-15"},
            {"store_url": "postgresql:///bos"},
        )
        found = find_connection(None, None, tmp_path)
    with own_folder(data) as folder:
        assert (folder.api_key, folder.last_port) == (key, 4711)

    assert (found.target, found.api_key) == ("127.0.0.1:4711", key)
    assert found.context == {"current_date": "2026-06-15"}
    assert found.operator == {"store_url": "postgresql:///bos"}
    assert "postgresql" not in repr(found)
    assert len(key) >= 32


def test_connection_file_and_log_are_readable_by_the_owner(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with open_log(data) as log, own_folder(data) as folder:
        log.write("x")
        folder.announce("127.0.0.1:1", folder.api_key, {})
        assert mode(data) == 0o700
        assert mode(folder.connection_file) == 0o600
        assert mode(data / LOG_FILE) == 0o600


def test_data_folder_in_use_is_refused_with_process_id_and_fix(tmp_path: Path) -> None:
    with (
        own_folder(tmp_path),
        pytest.raises(
            ConfigurationError, match=r"process [0-9]+.*BOS_STANDALONE_DATA_DIR"
        ) as caught,
        own_folder(tmp_path),
    ):
        pass
    assert caught.value.reason == "DATA_FOLDER_IN_USE"
    with own_folder(tmp_path):
        pass


def test_api_key_of_an_unregistered_folder_is_not_used(tmp_path: Path) -> None:
    content = {"target": "127.0.0.1:1", "api_key": "known to an attacker"}
    (tmp_path / "standalone.json").write_text(json.dumps(content))
    with own_folder(tmp_path) as folder:
        assert folder.api_key != content["api_key"]
        assert len(folder.api_key) >= 32


def test_message_without_a_configuration_folder_names_bos_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    data = tmp_path / CONNECTION_FILE.parent
    with own_folder(data) as folder:
        assert "BOS_TARGET" in folder.announce("127.0.0.1:1", folder.api_key, {})
        with pytest.raises(NoConnection):
            find_connection(None, None, tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"target": "x"}', '{"api_key": 1, "target": "x:y"}']
)
def test_damaged_connection_file_leads_to_a_new_api_key(tmp_path: Path, content: str) -> None:
    (tmp_path / "standalone.json").write_text(content)
    with own_folder(tmp_path) as folder:
        assert len(folder.api_key) >= 32
        assert folder.last_port == 0


def test_gateway_port_is_reused_unless_another_process_has_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        content = {"target": f"127.0.0.1:{port}", "api_key": "k" * 32}
        (tmp_path / "standalone.json").write_text(json.dumps(content))
        with own_folder(tmp_path) as folder:
            assert folder.gateway_port(0) == 0
            assert folder.gateway_port(8080) == 8080
    with own_folder(tmp_path) as folder:
        assert folder.gateway_port(0) == port


def test_error_names_a_data_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file/data"), own_folder(tmp_path / "file/data"):
        pass
    with pytest.raises(ConfigurationError, match="file/data"):
        open_log(tmp_path / "file/data")


def test_credential_encryption_key_is_kept_and_private(tmp_path: Path) -> None:
    with own_folder(tmp_path / "data") as folder:
        first = folder.secrets_keys()
        assert SecretsKeyRing.parse(first).ids == {"standalone"}
        assert mode(folder.path / "secrets.key") == 0o600
    with own_folder(tmp_path / "data") as folder:
        assert folder.secrets_keys() == first


def test_error_names_a_key_file_that_cannot_be_read(tmp_path: Path) -> None:
    with own_folder(tmp_path) as folder:
        (tmp_path / "secrets.key").mkdir()
        with pytest.raises(ConfigurationError, match=r"secrets\.key"):
            folder.secrets_keys()


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
