"""A warm process per experiment that forks one child for each parameter point.

`client` is the controller's side. `__main__` imports the experiment once and forks lanes. A `lane` sees one
trial at a time through and owns whatever that trial starts; its `zygote` does nothing but fork; a `child` is
the measured process itself. They talk in length-prefixed JSON (`wire`), never in pickles.

What is loaded before a zygote is forked, every measured process carries: the modules on that path import
little, `typing` and `dataclasses` not at all, and what only a lane needs is imported after the fork.
"""
