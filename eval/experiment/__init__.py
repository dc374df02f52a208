"""What runs an experiment: the methods by name, the back ends, the questions, the loop into run folders.

``run`` answers a dataset with some methods and resumes; ``registry`` is the one list of methods, to which
``own_methods`` adds those of a user's file; ``backends`` and ``questions`` are the options that all commands
of this kind share; ``workers`` answers the questions in this process or in actors of Ray.
"""
