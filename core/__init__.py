"""The words everyone speaks: types, protocols, tools, the runner, records, seeds, errors."""
