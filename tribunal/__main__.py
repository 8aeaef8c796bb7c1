"""`python -m tribunal` is the command `tribunal`."""

from tribunal.harness.cli.entry import main

main()
