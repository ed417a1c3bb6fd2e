"""YAML, `${}` and overrides to plain dicts, validated sections, and objects named by `_target_`."""
