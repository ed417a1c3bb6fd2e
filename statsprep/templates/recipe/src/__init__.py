"""Code of this recipe; configs name it as src.MODULE.NAME."""
