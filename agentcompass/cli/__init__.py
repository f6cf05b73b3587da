"""The command line: parse, call the engine, print; everything else is done below."""
