"""Templates: everything that is shown goes through them, and everything in them is escaped unless we drew it ourselves."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from pocketmq import __version__
from pocketmq.console import words
from pocketmq.model.names import is_internal_group


def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("pocketmq.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "number": words.number,
        "short": words.short_number,
        "span": words.span,
        "moment": words.moment,
        "share": words.share,
        "size": words.size,
        "perm": words.perm_text,
        "compression": words.compression_name,
        "part": lambda text: quote(str(text), safe=""),
    }
    made.tests["internal_group"] = is_internal_group
    made.globals |= {"version": __version__, "count": words.count}
    return made


class Templates:
    """Pages, and the live parts of them."""

    def __init__(self) -> None:
        self._environment = environment()

    def page(self, name: str, data: Mapping[str, Any]) -> str:
        return self._environment.get_template(f"{name}.html").render(data)

    def live(self, name: str, data: Mapping[str, Any]) -> str:
        """The part of a page that changes by itself; it stands in a file of its own, which the page includes."""
        return self._environment.get_template(f"live/{name}.html").render(data)
