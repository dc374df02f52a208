"""Search as a pipeline of stages: ``pipeline`` puts it together, ``stage`` says what a step is."""
