"""Who works on the questions of a run: this process, or actors of Ray on one machine or many.

A worker takes a whole question, not a request: it holds an engine and clients of search servers, and returns
the question's row. The process that was started alone writes the run folder.
"""
