"""Hooks of MkDocs: add pages made from the code, pictures and reports, and point links at the repository.

`make docs` runs MkDocs, which calls these functions by name (https://www.mkdocs.org/user-guide/configuration/#hooks).
WALLSCOPE_DOCS_PICTURES=kept uses pictures that an earlier build made, and makes none: so does `make check`.
"""

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # MkDocs loads this file by its path

from docs_build.commands import write_commands  # noqa: E402  # needs the path above
from docs_build.contracts import write_json_page  # noqa: E402
from docs_build.gallery import EXHIBITS, list_gallery_files, write_gallery_page  # noqa: E402
from docs_build.library import write_library  # noqa: E402
from docs_build.pictures import FOLDER, PICTURES, build_pictures, show_pictures  # noqa: E402

_LOG = logging.getLogger("mkdocs.hooks.wallscope")
MADE = {
    "commands.md": write_commands,
    "gallery.md": write_gallery_page,
    "json.md": write_json_page,
    "library.md": write_library,
}
"""Pages made from the code, by their names; docs/ holds no file of these names."""

_NOT_BUILT = "<p>This report is not built: run make docs.</p>\n"

OUTWARD = re.compile(r"\]\(\.\./(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]+)?\)")
"""A link from a page out of docs/ into the repository."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages made from the code, and the reports of the gallery."""
    from mkdocs.structure.files import File  # noqa: PLC0415  # MkDocs is there when MkDocs calls this

    for name, write in MADE.items():
        files.append(File.generated(config, name, content=write()))
    if os.environ.get("WALLSCOPE_DOCS_PICTURES") != "kept":
        build_pictures(FOLDER, _LOG.info)
    built = {path.name: str(path) for path in list_gallery_files(FOLDER)}
    for name in (f"{exhibit.page}.html" for exhibit in EXHIBITS):
        uri = f"gallery/{name}"
        if name in built:
            files.append(File.generated(config, uri, abs_src_path=built[name]))
        else:
            files.append(File.generated(config, uri, content=_NOT_BUILT))
    for name in PICTURES.values():
        if (FOLDER / name).is_file():
            files.append(File.generated(config, f"images/{name}", abs_src_path=str(FOLDER / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001  # MkDocs passes all
    """Show pictures, and point links out of docs/ at the files of the repository."""
    return link_repository(show_pictures(markdown, FOLDER), config["repo_url"])


def link_repository(markdown: str, repository: str) -> str:
    """Replace relative links out of docs/ by links to the repository.

    Raises:
        FileNotFoundError: a link leads to a file that is not in the repository.
    """

    def replace(match: re.Match[str]) -> str:
        path = match["path"]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"docs: ../{path} — no such file in the repository")
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({repository.rstrip('/')}/{kind}/main/{path}{match['anchor'] or ''})"

    return OUTWARD.sub(replace, markdown)
