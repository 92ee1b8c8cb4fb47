"""Where NVIDIA's compiler is in this Python."""

from __future__ import annotations

import importlib.util
import os

from .. import _core


def wheel_places() -> list[str]:
    """The folders with a package `nvidia`: there `pip install nvidia-cuda-nvrtc` puts NVRTC."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    return [os.path.dirname(place) for place in places or []]


def offer_wheel() -> None:
    """Tells the runtime of the first wheel that has NVRTC. An environment variable still wins."""
    for place in wheel_places():
        for wheel in ("cu13", "cuda_nvrtc"):
            if os.path.isdir(os.path.join(place, "nvidia", wheel, "lib")):
                _core.set_nvrtc_hint(place)
                return
