"""Pure numpy accumulators of means, deviations and ranges."""
