"""Every file format and every write: run paths, atomic files, the journal, shapes, statistics, JSON lines."""
