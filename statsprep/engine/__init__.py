"""The engine: providers and runners, the shard plan, fingerprints, one shard, the merge, and who executes
shards.
"""
