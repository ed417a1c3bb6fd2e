"""Ready-made runners, imported as `statsprep.runners`."""

from statsprep.runners.collect import collect_stats
from statsprep.runners.prepare import PrepareRunner
from statsprep.runners.prepare_corpus import prepare_corpus
from statsprep.runners.stats import CollectStatsRunner

__all__ = ["CollectStatsRunner", "PrepareRunner", "collect_stats", "prepare_corpus"]
