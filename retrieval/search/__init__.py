"""Search as a pipeline of stages: ``pipeline`` puts it together from the options."""
