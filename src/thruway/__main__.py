"""`python -m thruway` is the `thruway` command."""

from thruway.command.cli import main

if __name__ == "__main__":
    main(prog_name="thruway")
