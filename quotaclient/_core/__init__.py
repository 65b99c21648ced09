"""What decides: no I/O, no clock, no randomness; time is an argument."""
