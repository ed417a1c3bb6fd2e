"""Ready-made providers, imported as `statsprep.providers`."""

from statsprep.providers.prepare import PrepareProvider
from statsprep.providers.stats import CollectStatsProvider

__all__ = ["CollectStatsProvider", "PrepareProvider"]
