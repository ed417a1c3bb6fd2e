"""ESPnet's names for what statsprep has: a configuration written for ESPnet3 finds its classes here."""

ESPNET_NAMES: dict[str, str] = {
    "espnet2.train.collate_fn.CommonCollateFn": "statsprep.data.collate.CommonCollateFn",
    "espnet2.train.preprocessor.CommonPreprocessor": (
        "statsprep.data.espnet_preprocessor.CommonPreprocessor"
    ),
    "espnet3.components.data.data_organizer.DataOrganizer": "statsprep.data.organizer.DataOrganizer",
    "espnet3.components.data.dataset.CombinedDataset": "statsprep.data.organizer.CombinedDataset",
    "espnet3.components.data.collect_stats.collect_stats": "statsprep.runners.collect_stats",
    "espnet3.parallel.env_provider.EnvironmentProvider": "statsprep.engine.provider.EnvironmentProvider",
    "espnet3.parallel.base_runner.BaseRunner": "statsprep.engine.runner.BaseRunner",
    "espnet3.parallel.parallel.set_parallel": "statsprep.parallel.set_parallel",
    "espnet3.parallel.parallel.get_parallel_config": "statsprep.parallel.get_parallel_config",
    "espnet3.parallel.parallel.get_client": "statsprep.parallel.get_client",
    "espnet3.parallel.parallel.parallel_map": "statsprep.parallel.parallel_map",
    "espnet3.parallel.parallel.parallel_for": "statsprep.parallel.parallel_for",
}

# Known, and never built while statistics are collected: a training configuration that names them is accepted.
PLANNED: frozenset[str] = frozenset(
    {
        "espnet2.iterators.sequence_iter_factory.SequenceIterFactory",
        "espnet2.iterators.chunk_iter_factory.ChunkIterFactory",
        "espnet2.iterators.category_iter_factory.CategoryIterFactory",
        "espnet2.iterators.category_chunk_iter_factory.CategoryChunkIterFactory",
        "espnet2.iterators.multiple_iter_factory.MultipleIterFactory",
    }
)


def resolve_name(name: str) -> str:
    """statsprep's dotted name for an ESPnet name; any other name as it is."""
    return ESPNET_NAMES.get(name, name)
