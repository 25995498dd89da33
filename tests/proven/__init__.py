"""What is asked of the product, and which of it a test proves: for `make cases`.

A list (`listing`) gives each thing asked for an id; a test proves it by a mark with that id; `recorder` notes, inside
pytest, what became of the marked tests; `verdict` says what is proven. Not collected by pytest itself.
"""
