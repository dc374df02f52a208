"""The version that is installed."""

from corag.core.runs.environment import installed_version

__version__ = installed_version("corag")
