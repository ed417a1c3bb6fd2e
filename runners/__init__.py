"""Ready-made runners, imported as `statsprep.runners`."""

from statsprep.runners.collect import collect_stats
from statsprep.runners.stats import CollectStatsRunner

__all__ = ["CollectStatsRunner", "collect_stats"]
