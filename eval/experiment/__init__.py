"""What runs an experiment: methods by name, back ends, questions, the loop into a run folder."""
