"""A small drafter for every published way of writing one, and for every kind of folder that must be refused: README.md."""
