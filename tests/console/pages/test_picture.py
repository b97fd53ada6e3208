"""A picture on the overview: there once it is drawn, and nothing but a picture."""

from pathlib import Path

from tests.console.visitor import visitor

from pocketmq.console.pages.overview import MAX_PICTURE_BYTES, SVG, picture_name
from pocketmq.console.settings import ConsoleSettings


def test_a_picture_is_on_the_overview_as_soon_as_it_is_drawn(name_server: str, tmp_path: Path) -> None:
    path = tmp_path / "revenue.svg"
    with visitor(ConsoleSettings(picture=path), name_server) as console:
        assert 'src="/picture"' not in console.get("/")
        assert "no picture is configured" in console.get("/picture", 404)

        path.write_bytes(SVG + b"/>")

        assert 'src="/picture"' in console.get("/")
        answer = console.client.get("/picture")
        assert answer.content == SVG + b"/>"
        assert answer.headers["content-type"] == "image/svg+xml"


def test_a_file_that_is_not_a_picture_is_not_served(name_server: str, users: Path, tmp_path: Path) -> None:
    with visitor(ConsoleSettings(picture=users), name_server) as console:
        assert "is not an SVG" in console.get("/picture", 404)
    with visitor(ConsoleSettings(picture=users, users=users), name_server) as stranger:
        stranger.get("/picture", 401)
    large = tmp_path / "large.svg"
    large.write_bytes(SVG + bytes(MAX_PICTURE_BYTES))
    assert picture_name(ConsoleSettings(picture=large)) is None
    assert picture_name(ConsoleSettings()) is None
