"""Audio, manifests and their index, and the datasets over them."""
