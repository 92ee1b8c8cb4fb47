"""A function of the user's, called once with stand-ins, as the text of an expression.

tracer.py has the stand-ins; operations.py, arithmetic.py, logic.py and activations.py what may be
done with them, graph.py what was done; recording.py, captures.py and watch.py what the function
reads besides; trace.py puts them together.
"""
