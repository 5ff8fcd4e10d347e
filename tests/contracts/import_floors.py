"""``make check``: import contracts of pyproject.toml, and those that follow from the folders.

Every package below ``services`` stands on the libraries and imports no other service, the client
and the command line stand on contracts and errors alone, and only agents stand on agentkit. A new
member needs no entry in any list; a new library names its floor in the contract of that name.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

from importlinter import cli
from importlinter.application.app_config import settings
from importlinter.application.user_options import UserOptions

ROOT = Path(__file__).resolve().parents[2]
FLOORS = "Floors: each layer stands on the ones below it; services never import one another"
COMMAND_LINE = "bos_cli"
CLIENT_SIDE = {"bos_client", "bos_conversation", COMMAND_LINE}
BELOW_CLIENT = {"bos_errors", "bos_plainjson"}
STANDALONE = "bos_standalone"
MEMBERS = ("libs/*", "services/*", "services/agents/*")
Options = dict[str, Any]


def packages(root: Path, pattern: str) -> list[str]:
    """Our packages of the members whose folders match; those of libs/protos are generated."""
    return sorted(path.name for path in root.glob(f"{pattern}/src/bos_*"))


def all_packages(root: Path) -> list[str]:
    """Our packages of all members."""
    return [each for below in MEMBERS for each in packages(root, below)]


def completed(options: Options, root: Path) -> Options:
    """The options with what follows from the folders below ``root``.

    Raises:
        SystemExit: a library has no floor.
    """
    libraries, agents = packages(root, "libs/*"), packages(root, "services/agents/*")
    services = [each for each in packages(root, "services/*") if each != STANDALONE]
    contracts = options["contracts"]
    (floors,) = [each for each in contracts if each["name"] == FLOORS]
    named = {each.strip() for layer in floors["layers"] for each in layer.split("|")}
    if missing := sorted({*libraries} - named - CLIENT_SIDE):
        raise SystemExit(
            f"{', '.join(missing)} stands on no floor: add it to the layers of {FLOORS!r} in "
            "pyproject.toml"
        )
    everything = all_packages(root)
    side_by_side = " | ".join([*services, *agents, COMMAND_LINE])
    derived = [
        floors | {"layers": [STANDALONE, side_by_side, *floors["layers"]]},
        {
            "name": "The client's side stands on the contracts, their plain JSON and the errors",
            "type": "forbidden",
            "source_modules": sorted(CLIENT_SIDE),
            "forbidden_modules": sorted({*everything} - BELOW_CLIENT - CLIENT_SIDE),
        },
        {
            "name": "Only agents stand on agentkit: what else calls a model stands on bos_llm",
            "type": "forbidden",
            "source_modules": services,
            "forbidden_modules": ["bos_agentkit"],
        },
    ]
    others = [each for each in contracts if each["name"] != FLOORS]
    return options | {"root_packages": everything, "contracts": [*derived, *others]}


class _Completed:
    """What import-linter reads in the place of pyproject.toml."""

    def read_options(self, config_filename: str | None = None) -> UserOptions:
        """Options and contracts; truth values as import-linter's own readers give them."""
        read = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        options = completed(read["tool"]["importlinter"], ROOT)
        contracts = [_strings(each) for each in options.pop("contracts")]
        return UserOptions(_strings(options), contracts)


def _strings(options: Options) -> Options:
    return {key: str(each) if isinstance(each, bool) else each for key, each in options.items()}


if __name__ == "__main__":
    settings.configure(USER_OPTION_READERS={"toml": _Completed()})
    sys.exit(cli.lint_imports(cache_dir=sys.argv[1] if sys.argv[1:] else None))
