"""Settings for the tests of this folder."""

from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
