"""The command line: one short function per command, heavy imports inside."""
