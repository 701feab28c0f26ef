"""A local page to review the groups of a collection; the only package that imports a web server."""
