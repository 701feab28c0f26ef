"""Pages for people: the report of a collection or a run, and the review page."""
