"""`python -m pocketmq.console`: run the console. The exit codes are those of `pocketmq`."""

import os
import sys

import click

from pocketmq.errors import PocketMQError, UsageError, install_command

COMPLETION = "_POCKETMQ_CONSOLE_COMPLETE"
"""The variable by which a shell requests completions, through `pocketmq console`."""
REFUSED = 3
USAGE = 64
INTERRUPTED = 130
NICENESS = 10
"""The broker has priority on a busy machine."""

try:
    from pocketmq.console.command import console
except ModuleNotFoundError as error:
    text = f"the console needs {error.name}, which is not installed; run {install_command('console')}"
    click.echo(f"pocketmq: {text}", err=True)
    sys.exit(REFUSED)


def main() -> int:
    os.nice(NICENESS)
    try:
        console.main(prog_name="pocketmq console", complete_var=COMPLETION, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return _print_error("interrupted", INTERRUPTED)
    except UsageError as error:
        return _print_error(str(error), USAGE)
    except (PocketMQError, OSError) as error:
        return _print_error(str(error), REFUSED)
    return 0


def _print_error(text: str, code: int) -> int:
    click.echo(f"pocketmq: {text}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
