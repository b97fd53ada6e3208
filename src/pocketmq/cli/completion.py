"""Completion in shells: the script that a shell needs, and the names of topics and groups of the cluster that is named on the line.

    eval "$(pocketmq completion bash)"        pocketmq topic show or<Tab> ──► orders

Names are asked of the cluster only while that is quick: a shell that waits is worse than one that does not know.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from pocketmq.cli.asking import DEFAULT_NAME_SERVER, cluster_of
from pocketmq.errors import PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.blocking_admin import Admin

PATIENCE_MS: Final = 700
"""For one question, and for a connection."""
SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "pocketmq"
VARIABLE: Final = "_POCKETMQ_COMPLETE"

_CHANGES: Final = {
    # A shell that has not begun to complete yet does not know compdef.
    "zsh": (
        "#compdef pocketmq\n",
        "#compdef pocketmq\n\n(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n",
    ),
    # A description may have commas in it.
    "fish": ('string split ","', 'string split --max 1 ","'),
}
"""What click's scripts lack."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _names(ask: "Callable[[Admin], list[str]]") -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given = {**ctx.params, "namesrv": ctx.params.get("namesrv") or DEFAULT_NAME_SERVER}
        quick = {"call_timeout_ms": PATIENCE_MS, "connect_timeout_ms": PATIENCE_MS, "stop_timeout_ms": PATIENCE_MS}
        try:
            with cluster_of(given, **quick).long_admin() as admin:
                return [CompletionItem(name) for name in ask(admin) if name.startswith(incomplete)]
        except (PocketMQError, OSError):
            return []

    return complete


complete_topic: Final = _names(lambda admin: admin.topics.names())
complete_group: Final = _names(lambda admin: admin.groups.names())
complete_broker: Final = _names(lambda admin: sorted({place.name for place in admin.cluster.brokers()}))

topic_argument: Final = click.argument("topic", shell_complete=complete_topic)
group_argument: Final = click.argument("group", shell_complete=complete_group)


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what a shell needs to complete commands, options, and names of topics and groups.

    \b
    bash  echo 'eval "$(pocketmq completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(pocketmq completion zsh)"' >> ~/.zshrc
    fish  pocketmq completion fish > ~/.config/fish/completions/pocketmq.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click has a class for each of these"
    script = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    click.echo(script.replace(*_CHANGES.get(shell, ("", "")), 1))
