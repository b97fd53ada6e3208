"""`python -m pocketmq`: the command line."""

from pocketmq.cli import main

if __name__ == "__main__":
    main(prog_name="pocketmq")
