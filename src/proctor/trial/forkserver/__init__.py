"""A warm process per experiment that forks one child for each parameter point.

`client` is the controller's side. `__main__` imports the experiment once and forks lanes; a `lane` runs one
trial at a time and owns whatever that trial starts; a `child` is the measured process itself. They talk in
length-prefixed JSON (`wire`), never in pickles.
"""
