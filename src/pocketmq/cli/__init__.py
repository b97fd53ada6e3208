"""The command line: it starts servers, examines stores, and administrates running clusters.

Commands parse options, call the public API, print the result and choose the exit code:

    0    success
    1    not confirmed, so nothing changed; store verify: derived files differ from the log; msg send: stored, but not as safely
         as configured; bench: some messages failed; demo: messages are missing
    2    the log or a table is damaged
    3    failed: no such store or topic, no answer, no permission, in use, a child process failed; doctor: a step is broken
    64   usage error: unknown option, invalid value
    70   unexpected error; POCKETMQ_TRACEBACK=1 in the environment shows its traceback
    130  interrupted

Modules in reading order:

    commands           exit codes, error messages and kinds of options, for all commands
    output             tables, JSON lines and progress bars; commands that change something: plan, dry run, result
    cluster_options    options and connections of the commands for running clusters; shell completion
    programs           runs a server until SIGINT or SIGTERM; child processes
    server_options     options and banner of all servers
    nameserver         `pocketmq nameserver`
    broker             `pocketmq broker`
    serve              `pocketmq serve`: a name server and brokers together
    proxy              `pocketmq proxy`: gRPC in front of a cluster
    console            `pocketmq console`
    topic              `pocketmq topic`
    group              `pocketmq group`
    msg                `pocketmq msg` and `pocketmq msg trace`
    msg_send           `pocketmq msg send`
    dlq                `pocketmq dlq`: dead letters
    delay              `pocketmq delay`
    tx                 `pocketmq tx`: undecided transactions
    cluster            `pocketmq cluster`
    store              `pocketmq store`
    bench              `pocketmq bench`
    doctor             `pocketmq doctor`
    pipeline           `pocketmq pipeline`: one command for each job
    pipeline_lake      `pocketmq pipeline lake`
    pipeline_project   `pocketmq pipeline new` and `pocketmq pipeline run`
    demo               `pocketmq demo`
    all_commands       `pocketmq` with all commands
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.cli.all_commands import main as main
else:

    def __getattr__(name: str) -> object:
        """The web console uses the options of this package without its commands, which need much more memory."""
        if name == "main":
            from pocketmq.cli.all_commands import main

            return main
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
