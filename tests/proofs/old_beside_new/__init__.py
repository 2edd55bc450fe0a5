"""The same scenarios in two states of the package, and where their answers differ."""
