"""The ``bos`` command line. Exit codes are in :mod:`bos_cli.session`."""

from __future__ import annotations

import click
from click.core import ParameterSource

from bos_cli.commands.account import account
from bos_cli.commands.approvals import approvals
from bos_cli.commands.ask import ask, plan
from bos_cli.commands.documents import documents
from bos_cli.commands.feedback import feedback
from bos_cli.commands.identity import login, logout, register, reset_password, whoami
from bos_cli.commands.mail import mail
from bos_cli.commands.memory import conversations, memory_group
from bos_cli.commands.runs import agents, runs
from bos_cli.commands.sql import sql
from bos_cli.commands.users import keys, users
from bos_cli.commands.webhooks import webhooks
from bos_cli.commands.workspace import workspace
from bos_cli.plugins import PluginGroup
from bos_cli.session import Target
from bos_client.transport import Transport, use_transport


@click.group(
    cls=PluginGroup,
    plugins="bos.commands",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--target",
    envvar="BOS_TARGET",
    help="Gateway as host:port, or grpcs://host:port.  [env: BOS_TARGET]",
)
@click.option(
    "--api-key",
    envvar="BOS_API_KEY",
    help="Key for the gateway; better set by BOS_API_KEY, which goes only to --target or"
    " BOS_TARGET.",
)
@click.option(
    "--identity-target",
    envvar="BOS_IDENTITY_TARGET",
    help="Identity as host:port, if it is not behind the gateway's address."
    "  [env: BOS_IDENTITY_TARGET]",
)
@click.option(
    "--memory-target",
    envvar="BOS_MEMORY_TARGET",
    help="Memory as host:port, if it is not behind the gateway's address."
    "  [env: BOS_MEMORY_TARGET]",
)
@click.option(
    "--documents-target",
    envvar="BOS_DOCUMENTS_TARGET",
    help="Documents as host:port, if they are not behind the gateway's address."
    "  [env: BOS_DOCUMENTS_TARGET]",
)
@click.option(
    "--files-target",
    envvar="BOS_FILES_TARGET",
    help="Workspaces as host:port, if they are not behind the gateway's address."
    "  [env: BOS_FILES_TARGET]",
)
@click.option(
    "--ca-file",
    envvar="BOS_CA_FILE",
    help="Authorities (PEM) of the services' certificates; --target is then called over TLS. With"
    " grpcs://host:port as --target, those of this system count without it.  [env: BOS_CA_FILE]",
)
@click.option(
    "--cert-file",
    envvar="BOS_CERT_FILE",
    help="Certificate (PEM) to show to services that demand one.  [env: BOS_CERT_FILE]",
)
@click.option("--key-file", envvar="BOS_KEY_FILE", help="Its key (PEM).  [env: BOS_KEY_FILE]")
@click.option(
    "--insecure",
    is_flag=True,
    envvar="BOS_INSECURE",
    help="Let keys and tokens go in plain text beyond this machine.  [env: BOS_INSECURE]",
)
@click.version_option(package_name="bos-cli", message="bos %(version)s")
@click.pass_context
def main(
    ctx: click.Context,
    target: str | None,
    api_key: str | None,
    identity_target: str | None,
    memory_target: str | None,
    documents_target: str | None,
    files_target: str | None,
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    insecure: bool,
) -> None:
    """Ask questions, and see how they are answered.

    Without --target the local `bos serve all` is asked, by its file .data/standalone.json.
    """
    given = ctx.get_parameter_source("api_key") is ParameterSource.COMMANDLINE
    if not target and not given:
        # A key of the environment is for a gateway that is named, never for one that is found.
        api_key = None
    # Without a target it is what runs on this machine, which speaks plain text.
    files = (ca_file, cert_file, key_file) if target else (None, None, None)
    ctx.with_resource(use_transport(Transport(*files, insecure)))
    beside = (identity_target, memory_target, documents_target, files_target)
    ctx.obj = Target(target, api_key, *beside)


_asking = (
    *(ask, plan, runs, approvals, agents, feedback),
    *(documents, workspace, conversations, memory_group, mail),
    *(webhooks, sql),
)
_accounts = (register, login, logout, whoami, reset_password, users, keys, account)
for _command in (*_asking, *_accounts):
    main.add_command(_command)
