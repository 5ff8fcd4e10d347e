"""``bos mail connect`` sends what is needed of what it is given, and asks for nothing else."""

import importlib
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

command: Any = importlib.import_module("bos_cli.commands.mail")  # its package names the group so
TOKEN = {"client_id": "id", "client_secret": "of-client", "refresh_token": "1//refresh"}


def test_servers_have_their_usual_ports_and_tls_unless_said_otherwise() -> None:
    assert command._servers("mail.example.com", None, None, None) == {
        "imap_host": "mail.example.com",
        "imap_port": "993",
        "smtp_host": "mail.example.com",
        "smtp_port": "465",
    }
    found = command._servers("imap.example.com:143", "smtp.example.com:587", "starttls", None)
    assert (found["imap_port"], found["imap_security"]) == ("143", "starttls")
    assert (found["smtp_host"], found["smtp_port"]) == ("smtp.example.com", "587")


@pytest.mark.parametrize("host", ["", ":993", "mail.example.com:imaps"])
def test_an_invalid_server_is_refused(host: str) -> None:
    with pytest.raises(click.UsageError, match="--imap must be a host"):
        command._servers(host, "smtp.example.com", None, None)


@pytest.mark.parametrize("form", ["flat", "installed"])
def test_of_a_token_file_nothing_is_sent_but_what_is_needed(form: str, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    client = {name: TOKEN[name] for name in ("client_id", "client_secret")}
    content: dict[str, Any] = {**TOKEN, "token_uri": "https://elsewhere.example"}
    if form == "installed":
        content = {"installed": {**client, "token_uri": "x"}, "refresh_token": "1//refresh"}
    file.write_text(json.dumps(content))
    assert json.loads(command._token_of(file)) == TOKEN


@pytest.mark.parametrize(
    "content", ["", "[]", '{"client_id": "a"}', json.dumps({**TOKEN, "client_id": 5})]
)
def test_a_token_file_that_lacks_something_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    file.write_text(content)
    with pytest.raises(click.UsageError, match="refresh_token"):
        command._token_of(file)


@pytest.mark.parametrize(
    "arguments", [["a@example.com"], ["a@example.com", "--imap", "x.example", "--gmail-token", "/"]]
)
def test_one_kind_of_mailbox_must_be_named(arguments: list[str]) -> None:
    found = CliRunner().invoke(command.mail, ["connect", *arguments])
    assert found.exit_code == 2


def test_the_password_is_no_argument() -> None:
    names = {option for each in command.connect.params for option in each.opts}
    assert "--password" not in names
