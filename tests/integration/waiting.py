"""Waiting for what comes in its own time."""

import time


def wait_for(done, what, seconds=30):
    """Until done() is true; fails when that takes longer."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what} did not come"
        time.sleep(0.02)
