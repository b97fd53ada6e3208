"""A hook of MkDocs: files of the repository that a page links to are part of the website.

The pages read well as plain files, so they link to examples and sources by relative paths. MkDocs knows only files below
docs/. This hook adds the others below `repository/` and changes the links. A link to a folder becomes its text.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent
OUTSIDE = "repository"
"""The folder of the website for files that are not below docs/."""
_LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    waiting = [file.src_uri for file in files if file.is_documentation_page()]
    while waiting:
        uri = waiting.pop()
        for target in _targets(uri):
            added = _uri(target)
            if target.is_file() and added.startswith(f"{OUTSIDE}/") and files.get_file_from_path(added) is None:
                files.append(File.generated(config, added, abs_src_path=str(target)))
                if target.suffix == ".md":
                    waiting.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    folder = _source(uri).parent

    def changed(link: re.Match[str]) -> str:
        mark, text, path, anchor = link.groups(default="")
        if ":" in path:
            return link[0]
        target = Path(os.path.normpath(folder / path))
        if target.is_dir():
            return text
        return f"{mark}[{text}]({os.path.relpath(_uri(target), Path(uri).parent)}{anchor})"

    return _LINK.sub(changed, markdown)


def _targets(uri: str) -> list[Path]:
    source = _source(uri)
    links = _LINK.findall(source.read_text("utf-8")) if source.exists() else []
    return [Path(os.path.normpath(source.parent / path)) for _, _, path, _ in links if ":" not in path]


def _source(uri: str) -> Path:
    """The file of the repository that a page of the website is made from."""
    return ROOT / uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else ROOT / "docs" / uri


def _uri(source: Path) -> str:
    path = source.relative_to(ROOT)
    return Path(*path.parts[1:]).as_posix() if path.parts[0] == "docs" else f"{OUTSIDE}/{path.as_posix()}"
