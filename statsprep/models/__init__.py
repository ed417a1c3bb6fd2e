"""Models and the features that statistics are taken of."""
