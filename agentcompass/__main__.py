"""``python -m agentcompass`` is the command line."""

from .cli.main import main

main()
