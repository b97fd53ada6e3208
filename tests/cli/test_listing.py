"""Lists that may be incomplete. The commands that show lists of names have their own tests."""

import click
import pytest
from click.testing import CliRunner

from pocketmq.cli.cluster_options import limit_option, show_some
from pocketmq.cli.output import Column

COLUMNS = (Column("name"),)


@pytest.mark.parametrize(("more", "told"), [("", ""), ("ask again.", "There may be more: ask again.\n")])
def test_an_incomplete_list_is_marked_outside_its_rows(
    more: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_some([{"name": "a"}], COLUMNS, as_json=True, empty="nothing", more=more)

    assert capsys.readouterr() == ('{"name":"a"}\n', told)


@pytest.mark.parametrize(("words", "limit"), [([], "7"), (["--limit", "3"], "3")])
def test_a_limit_has_a_default(words: list[str], limit: str) -> None:
    @click.command()
    @limit_option(7, "At most so many.")
    def some(limit: int) -> None:
        click.echo(limit)

    assert CliRunner().invoke(some, words).output == f"{limit}\n"
    assert CliRunner().invoke(some, ["--limit", "0"]).exit_code == 2
    assert "At most so many.  [default: 7; x>=1]" in CliRunner().invoke(some, ["--help"]).output
