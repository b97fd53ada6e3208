"""`python -m pocketmq.console`: the console as a process of its own. Exit codes are those of `pocketmq`."""

import os
import sys

import click

from pocketmq.errors import PocketMQError, UsageError

COMPLETION = "_POCKETMQ_CONSOLE_COMPLETE"
"""The variable by which a shell asks for completions; `pocketmq console` passes the question on."""
REFUSED = 3
USAGE = 64
INTERRUPTED = 130
GIVES_WAY = 10
"""By how much it is nice: on a busy machine the broker that is watched goes first."""

try:
    from pocketmq.console.command import console
except ModuleNotFoundError as error:
    what = f"the console needs {error.name}, which is not installed: pip install 'pocketmq[console]'"
    click.echo(f"pocketmq: {what}", err=True)
    sys.exit(REFUSED)


def main() -> int:
    os.nice(GIVES_WAY)
    try:
        console.main(prog_name="pocketmq console", complete_var=COMPLETION, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return _told("interrupted", INTERRUPTED)
    except UsageError as error:
        return _told(str(error), USAGE)
    except (PocketMQError, OSError) as error:
        return _told(str(error), REFUSED)
    return 0


def _told(text: str, code: int) -> int:
    click.echo(f"pocketmq: {text}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
